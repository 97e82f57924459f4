"""How ranks of a test meet: however long a busy machine takes to start them, the group's timeout counts from when all are there."""

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

MEETING = timedelta(seconds=180)  # no test is about this; what starts the ranks ends them in time


def join(timeout: float, backend: str | None = "neuron", **options: Any) -> None:
    """Make the default group of the ranks that the environment names, with a timeout in seconds."""
    rank, size, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    store = dist.TCPStore(os.environ["MASTER_ADDR"], port, size, is_master=rank == 0, timeout=MEETING, wait_for_workers=True)
    store.set_timeout(timedelta(seconds=timeout))
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout), **options)
