// See operation.h.
#include "torch/distributed/operation.h"

#include <c10/util/Exception.h>

#include <utility>

#include "collectives/error.h"
#include "runtime/guard/access_scope.h"
#include "torch/distributed/data_types.h"
#include "torch/distributed/flight_recorder.h"

namespace neuron::distributed {

std::exception_ptr describe_error(const Group& group, const std::string& operation, std::exception_ptr error) {
  try {
    std::rethrow_exception(std::move(error));
  } catch (const collectives::Error& transport) {
    const auto names = group.names();
    const auto rank = static_cast<std::size_t>(names.rank);
    const auto dump = FlightRecorder::instance().dump_after_failure(rank < names.global_ranks.size() ? names.global_ranks[rank]
                                                                                                     : static_cast<std::uint64_t>(rank));
    const auto text = c10::str(operation, " failed on ", group.describe(), ": ", transport.what(),
                               dump.empty() ? "" : "\nThe last operations of this process are in " + dump);
    if (transport.code() == collectives::ErrorCode::kInvalidArgument) {
      return std::make_exception_ptr(c10::ValueError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text));
    }
    return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text));
  } catch (...) {
    return std::current_exception();
  }
}

void Operation::run(std::uint64_t sequence) {
  auto& recorder = FlightRecorder::instance();
  recorder.change(record, FlightRecorder::State::kStarted, sequence);
  try {
    const runtime::guard::AccessScope access;
    collectives::Call call;
    call.sequence = sequence;
    call.timeout = timeout;
    const auto& shaped = inputs.empty() ? outputs : inputs;
    if (!shaped.empty()) {
      call.shape = {shaped.front().sizes().data(), shaped.front().sizes().size()};
    }
    auto& communicator = group->communicator(timeout);
    staging.fill();
    body(communicator, call);
    staging.write_back();
    recorder.change(record, FlightRecorder::State::kCompleted, sequence);
  } catch (...) {
    auto error = std::current_exception();
    recorder.change(record, FlightRecorder::State::kFailed, sequence);
    std::rethrow_exception(describe_error(
        *group, c10::str(name, ", sequence number ", sequence, inputs.empty() ? "" : ", of " + describe(inputs), ","), std::move(error)));
  }
}

}  // namespace neuron::distributed
