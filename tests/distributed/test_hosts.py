"""Ranks on several hosts: shared memory within a host, Gloo between.

Hosts are made up by TORCH_NEURONX_HOST_ID; where the test runs as root they are network namespaces too, with a cable between them.
"""

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.distributed.launch import run_ranks, values
from tests.distributed.programs import collectives, hosts
from tests.distributed.test_collectives import no_faults


def two_hosts(rank):
    """Ranks 0 and 1 on one host, the rest on the other."""
    return {"TORCH_NEURONX_HOST_ID": f"host{int(rank > 1)}", "GLOO_SOCKET_IFNAME": "lo"}


def mixed_hosts(rank):
    """Ranks of one host are not neighbours."""
    return {"TORCH_NEURONX_HOST_ID": f"host{rank % 2}", "GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize("env", [two_hosts, mixed_hosts])
def test_lists_splits_and_layouts(env):
    no_faults(run_ranks(collectives.uneven, 4, timeout=120, env=env))


@pytest.mark.extra
@pytest.mark.parametrize("program", [collectives.reductions, collectives.movements])
def test_all_dtypes(program):
    no_faults(run_ranks(program, 3, timeout=500, env=mixed_hosts))


def test_random_schedules():
    no_faults(run_ranks(collectives.random_schedules, 4, 77, 4, timeout=200, env=two_hosts))


def test_a_mismatch_between_hosts():
    for text in values(run_ranks(hosts.differs, 4, timeout=60, env=two_hosts)):
        assert "all_reduce" in text and "7 elements" in text and "8 elements" in text, text


class Cable:
    """Two network namespaces joined by a pair of virtual Ethernet devices."""

    def __init__(self):
        tag = os.getpid() % 10000
        self.spaces = [f"snhost{tag}a", f"snhost{tag}b"]
        self.devices = [f"sn{tag}a", f"sn{tag}b"]
        for space in self.spaces:
            self.ip("netns", "add", space)
        self.ip("link", "add", self.devices[0], "type", "veth", "peer", "name", self.devices[1])
        for number, (space, device) in enumerate(zip(self.spaces, self.devices, strict=True), 1):
            self.ip("link", "set", device, "netns", space)
            self.ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", device)
            self.ip("-n", space, "link", "set", device, "up")
            self.ip("-n", space, "link", "set", "lo", "up")

    @staticmethod
    def ip(*command):
        subprocess.run(["ip", *command], check=True, capture_output=True, timeout=20)

    def cut(self):
        self.ip("-n", self.spaces[1], "link", "set", self.devices[1], "down")

    def remove(self):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True, timeout=20)

    def env(self, rank):
        host = int(rank > 1)
        return {
            "TORCH_NEURONX_HOST_ID": f"host{host}",
            "GLOO_SOCKET_IFNAME": self.devices[host],
            "MASTER_ADDR": "10.77.0.1",
            "TEST_NETWORK_NAMESPACE": f"/run/netns/{self.spaces[host]}",
        }


@pytest.fixture
def cable():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command `ip`")
    try:
        made = Cable()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode().strip()}")
    yield made
    made.remove()


def test_two_namespaces(cable):
    results = values(run_ranks(hosts.sums_and_fsdp, 4, timeout=200, env=cable.env))
    assert all(total == 10.0 for total, _, _ in results)
    for _, losses, expected in results:
        assert losses == pytest.approx(expected, rel=1e-5)


def test_a_host_that_is_cut_off(cable, tmp_path):
    ready = tmp_path / "ready"

    def cut():
        deadline = time.monotonic() + 60
        while not all(Path(f"{ready}{rank}").exists() for rank in range(4)) and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1)
        cable.cut()

    scissors = threading.Thread(target=cut)
    scissors.start()
    results = values(run_ranks(hosts.until_cut, 4, str(ready), 5.0, timeout=120, env=cable.env))
    scissors.join()
    for text, seconds in results:
        assert seconds < 60
        assert "all_reduce" in text and "sequence number" in text, text
