// Python's way into the compiler.
#include "torch/bindings/compile_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <string>

#include "compiler/memory_estimate.h"
#include "compiler/printer.h"
#include "runtime/telemetry.h"
#include "torch/bindings/program_description.h"
#include "torch/bindings/python_arguments.h"
#include "torch/bindings/python_call.h"
#include "torch/bindings/python_external_call.h"
#include "torch/compile/program_builder.h"
#include "torch/compile/program_compiler.h"
#include "torch/compile/stored_programs.h"

namespace py = pybind11;

namespace neuron::bindings {
namespace {

using compile::CompiledProgram;
using compile::ProgramBuilder;

std::vector<compiler::Type> types_from_python(const py::list& objects) {
  std::vector<compiler::Type> types;
  for (const py::handle object : objects) {
    types.push_back(type_from_python(object));
  }
  return types;
}

std::vector<compiler::ValueId> add_call(ProgramBuilder& builder, const std::string& opcode, const py::tuple& positional,
                                        const py::dict& named, const py::list& result_types) {
  HANDLE_TH_ERRORS
  std::vector<compiler::Argument> arguments;
  for (const py::handle argument : positional) {
    arguments.push_back(argument_from_python(argument));
  }
  std::vector<std::pair<std::string, compiler::Argument>> keywords;
  for (const auto& [name, argument] : named) {
    keywords.emplace_back(name.cast<std::string>(), argument_from_python(argument));
  }
  return builder.add_call(opcode, std::move(arguments), std::move(keywords), types_from_python(result_types));
  END_HANDLE_TH_ERRORS_PYBIND
}

void set_outputs(ProgramBuilder& builder, const py::list& objects) {
  std::vector<compiler::Argument> outputs;
  for (const py::handle object : objects) {
    outputs.push_back(argument_from_python(object));
  }
  builder.set_outputs(std::move(outputs));
}

// The compiled graph as AOTAutograd calls it: one list of inputs, which the call empties so that what is dead inside is dead outside too.
class CompiledGraph {
 public:
  explicit CompiledGraph(CompiledProgram program) : program_(std::move(program)) {}

  py::list operator()(const py::list& arguments) const {
    HANDLE_TH_ERRORS
    const auto count = static_cast<std::size_t>(PyList_GET_SIZE(arguments.ptr()));
    std::vector<c10::IValue> values;
    values.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(from_python(PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i))));
    }
    if (PyList_SetSlice(arguments.ptr(), 0, static_cast<Py_ssize_t>(count), nullptr) != 0) {
      throw py::error_already_set();
    }
    {
      const py::gil_scoped_release no_gil;
      device::translate_errors([&] { values = run(std::move(values)); });
    }
    runtime::add(runtime::Counter::kGraphExecutions);
    py::list results(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      PyList_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), to_python(values[i]).release().ptr());
    }
    return results;
    END_HANDLE_TH_ERRORS_PYBIND
  }

  const CompiledProgram& program() const { return program_; }
  std::string text() const { return compiler::to_string(program_.executable->program()); }

 private:
  std::vector<c10::IValue> run(std::vector<c10::IValue> values) const {
    try {
      return program_.executable->run(std::move(values));
    } catch (c10::OutOfMemoryError& error) {
      // The executor has named the instruction and the graph.
      const compiler::MemoryEstimate estimate = compiler::estimate_memory(program_.executable->program());
      error.add_context(c10::str("the graph needs about ", static_cast<double>(estimate.peak_bytes) / (1ULL << 30),
                                 " GiB at once besides its inputs (", static_cast<double>(estimate.input_bytes) / (1ULL << 30), " GiB)"));
      throw;
    }
  }

  CompiledProgram program_;
};

// `stages`: a list that gets a (name, text) for each form of the program, or None.
CompiledGraph finish(ProgramBuilder& builder, const std::optional<std::string>& device, const std::optional<py::list>& stages) {
  HANDLE_TH_ERRORS
  std::optional<c10::Device> target;
  if (device) {
    target = c10::Device(*device);
  }
  compile::StageObserver observer;
  if (stages) {
    observer = [list = *stages](const char* stage, const compiler::Program& program) mutable {
      const py::gil_scoped_acquire gil;
      list.append(py::make_tuple(stage, compiler::to_string(program)));
    };
  }
  const py::gil_scoped_release no_gil;
  return device::translate_errors([&] { return CompiledGraph(compile::compile_program(std::move(builder), target, observer)); });
  END_HANDLE_TH_ERRORS_PYBIND
}

std::vector<at::Tensor> tensors_from(const py::list& objects) {
  std::vector<at::Tensor> tensors;
  for (const py::handle object : objects) {
    if (!THPVariable_Check(object.ptr())) {
      throw py::type_error("a constant is a tensor");
    }
    tensors.push_back(THPVariable_Unpack(object.ptr()).detach());
  }
  return tensors;
}

CompiledGraph load_program(const std::string& name, const std::string& fingerprint, const std::string& text, const py::list& constants) {
  HANDLE_TH_ERRORS
  std::vector<at::Tensor> tensors = tensors_from(constants);
  const py::gil_scoped_release no_gil;
  return device::translate_errors([&] { return CompiledGraph(compile::load_program(name, fingerprint, text, std::move(tensors))); });
  END_HANDLE_TH_ERRORS_PYBIND
}

// (text, constants), or None for a program that calls back into Python.
py::object storable(const CompiledGraph& graph) {
  const compile::Executable& executable = *graph.program().executable;
  const auto text = compile::storable_text(executable);
  if (!text) {
    return py::none();
  }
  py::list constants;
  for (const at::Tensor& constant : executable.objects().constants) {
    constants.append(to_python(constant));
  }
  return py::make_tuple(*text, std::move(constants));
}

// (runs, nanoseconds by instruction) of the runs while times were asked for.
py::tuple step_times(const CompiledGraph& graph) {
  const compile::StepTimes& times = graph.program().executable->times();
  std::vector<std::int64_t> nanoseconds(times.size());
  for (std::size_t i = 0; i < nanoseconds.size(); ++i) {
    nanoseconds[i] = times.nanoseconds(i);
  }
  return py::make_tuple(times.runs(), std::move(nanoseconds));
}

py::dict cache_counters() {
  const compiler::CacheCounters counters = compile::cache_counters();
  py::dict result;
  result["InMemoryHits"] = counters.hits;
  result["InMemoryMisses"] = counters.misses;
  const compile::StoredCounters stored = compile::stored_counters();
  result["PersistentHits"] = stored.hits;
  result["PersistentMisses"] = stored.misses;
  result["Evictions"] = counters.evictions;
  result["TotalCompilations"] = counters.compilations;
  return result;
}

}  // namespace

void register_compile_bindings(py::module_& m) {
  py::class_<PythonValue>(m, "Value", "A value of a program under construction, as it stands in argument trees.")
      .def(py::init<compiler::ValueId>(), py::arg("id"))
      .def_readonly("id", &PythonValue::id)
      .def("__repr__", [](const PythonValue& value) { return "%" + std::to_string(value.id); });

  py::class_<ProgramBuilder>(m, "ProgramBuilder", "Receives an AOT graph node by node; `finish` compiles it.")
      .def(py::init<std::string>(), py::arg("name"))
      .def(
          "add_input", [](ProgramBuilder& builder, py::handle type) { return builder.add_input(type_from_python(type)); }, py::arg("type"))
      .def(
          "add_constant",
          [](ProgramBuilder& builder, py::handle tensor) {
            if (!THPVariable_Check(tensor.ptr())) {
              throw py::type_error("a constant is a tensor");
            }
            return builder.add_constant(THPVariable_Unpack(tensor.ptr()).detach());
          },
          py::arg("tensor"))
      .def("add_call", &add_call, py::arg("opcode"), py::arg("args"), py::arg("kwargs"), py::arg("result_types"))
      .def(
          "add_python_call",
          [](ProgramBuilder& builder, const std::string& name, py::object function, const std::vector<compiler::ValueId>& arguments,
             const py::list& result_types) {
            return builder.add_external_call(name, std::make_shared<PythonExternalCall>(std::move(function)), arguments,
                                             types_from_python(result_types));
          },
          py::arg("name"), py::arg("function"), py::arg("arguments"), py::arg("result_types"))
      .def("set_outputs", &set_outputs, py::arg("outputs"))
      .def("finish", &finish, py::arg("device") = py::none(), py::arg("stages") = py::none());

  py::class_<CompiledGraph> graph(m, "CompiledGraph",
                                  "A compiled graph: call it with one list of inputs, which it empties; returns a list.");
  graph.def("__call__", &CompiledGraph::operator(), py::arg("args"))
      .def_property_readonly("text", &CompiledGraph::text)
      .def_property_readonly("fingerprint", [](const CompiledGraph& self) { return self.program().fingerprint; })
      .def_property_readonly("was_cached", [](const CompiledGraph& self) { return self.program().was_cached; })
      .def_property_readonly("was_stored", [](const CompiledGraph& self) { return self.program().was_stored; })
      .def_property_readonly("lower_us", [](const CompiledGraph& self) { return self.program().lower_us; })
      .def_property_readonly("compile_us", [](const CompiledGraph& self) { return self.program().compile_us; })
      .def_property_readonly("instruction_count", [](const CompiledGraph& self) { return self.program().instruction_count; });
  graph.def("instructions", [](const CompiledGraph& self) { return describe_instructions(self.program().executable->program()); })
      .def("memory_estimate", [](const CompiledGraph& self) { return describe_memory(self.program().executable->program()); })
      .def("step_times", &step_times)
      .def("storable", &storable);
  graph.attr("_boxed_call") = true;

  m.def("load_program", &load_program, py::arg("name"), py::arg("fingerprint"), py::arg("text"), py::arg("constants"));
  m.def("store_program", &compile::store, py::arg("fingerprint"), py::arg("text"));
  m.def("build_identity", &compile::build_identity);
  m.def("ask_for_step_times", &compile::StepTimes::ask, py::arg("on"));
  m.def("take_compile_reports", &compile::take_reports);
  m.def("compile_cache_counters", &cache_counters);
  m.def("clear_compile_cache", &compile::clear_cache);
}

}  // namespace neuron::bindings
