"""The backend `"neuron"` of torch.distributed.

No program needs to import this: the backend is registered when the device is, and `init_process_group()` finds it.
"""

import atexit
import json
import os
from typing import Any

import torch

from torch_neuronx._library import _C


def register() -> None:
    """Make `"neuron"` the backend of the device `neuron`. A build of torch without torch.distributed gets none."""
    if torch.distributed.is_available():
        torch.distributed.Backend.register_backend("neuron", _create_process_group, extended_api=True, devices=["neuron"])


def flight_record() -> dict[str, Any]:
    """Return this process's last operations on process groups, oldest first.

    The value under `entries` is a list of dictionaries: `group`, `operation`, `sequence`, `state` (`scheduled`, `started`, `completed`
    or `failed`), dtypes and sizes of `inputs` and `outputs`, and the times of the changes of state in seconds since the epoch.
    `TORCH_NEURONX_FLIGHT_RECORDER_SIZE` says how many are kept.
    """
    record: dict[str, Any] = json.loads(_C.flight_record())
    return record


def _local_rank_and_size() -> tuple[int, int] | None:
    """Return what the launcher says about this process's place on its host."""
    try:
        return int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return None


def _create_process_group(given: Any, options: Any) -> Any:
    """Make the group for torch.distributed from its `DistributedBackendOptions` and the caller's `pg_options`, which may be None."""
    if not hasattr(_C, "ProcessGroupNeuron"):
        _C.register_process_group()
        # Threads of groups that the program never destroyed must end before the interpreter does.
        atexit.register(_C.leave_all_process_groups)
        if torch.distributed.is_gloo_available():
            # Between hosts, for groups that span several.
            _C.set_gloo_factory(lambda store, rank, size, timeout: torch.distributed.ProcessGroupGloo(store, rank, size, timeout=timeout))
    kind = _C.ProcessGroupNeuron.Options
    if options is not None and not isinstance(options, kind):
        raise TypeError(f"pg_options of the backend 'neuron' must be ProcessGroupNeuron.Options, but are {type(options).__name__}")
    own = kind()
    own._timeout = given.timeout
    own.group_name = given.group_id
    own.global_ranks_in_group = given.global_ranks_in_group
    place = _local_rank_and_size()
    if place is not None:
        _C.bind_to_cores(*place)
    return _C.ProcessGroupNeuron(given.store, given.group_rank, given.group_size, own)
