"""weir.pack: indices by replica and microbatch, from the command."""

import os
from contextlib import closing
from pathlib import Path
from typing import Iterator

import pytest

import weir

COSTS = """{"schema": 1, "unit": "ns", "stages": [{"f": 10000, "b": 20000, "per_token": {"f": 200, "b": 400, "saved": 100000}}]}"""


@pytest.fixture(autouse=True)
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if "WEIR" not in os.environ:
        pytest.skip("WEIR names no binary of the command, which packs")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "weir").symlink_to(os.path.abspath(os.environ["WEIR"]))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    (tmp_path / "costs.json").write_text(COSTS)
    monkeypatch.chdir(tmp_path)
    yield


def test_steps() -> None:
    with closing(weir.Packer(ranks=4, replicas=2, tokens=4096, costs="costs.json")) as packer:
        for lengths in ([300, 4000, 2000, 100, 1500, 700], [5, 6, 7], list(range(1, 400))):
            packing = packer.pack(lengths)
            flat = sorted(i for replica in packing.packs for microbatch in replica for i in microbatch)
            assert flat == list(range(len(lengths))) and len(packing.packs) == 2
            assert all(sum(lengths[i] for i in microbatch) <= 4096 for replica in packing.packs for microbatch in replica)
            assert packing.bound <= packing.makespan and packing.unit == "ns" and len(packing.peaks[0]) == 4
            assert packing == weir.pack(lengths, ranks=4, replicas=2, tokens=4096, costs="costs.json")
        with pytest.raises(weir.PackError, match="the longest that fits has 4096") as refused:
            packer.pack([1, 5000])
        assert (refused.value.sequence, refused.value.length, refused.value.longest, refused.value.rank, refused.value.excess) == (1, 5000, 4096, None, 904)
        with pytest.raises(weir.PackError, match="no sequences"):
            packer.pack([])
        assert packer.pack([5, 6, 7]).packs, "a refusal ends nothing"


def test_pieces_and_memory() -> None:
    packing = weir.pack([10, 9000], ranks=2, tokens=4096, costs="costs.json", long="split")
    assert packing.pieces == [{"sequence": 0, "from": 0, "tokens": 10}, {"sequence": 1, "from": 0, "tokens": 4096},
                              {"sequence": 1, "from": 4096, "tokens": 4096}, {"sequence": 1, "from": 8192, "tokens": 808}]
    with pytest.raises(weir.PackError) as refused:
        weir.pack([10, 9000], ranks=2, memory="100MiB", costs="costs.json")
    assert refused.value.rank is not None and refused.value.sequence == 1


def test_wrong_flags() -> None:
    with pytest.raises(weir.PlanError, match="give either --costs or --config"):
        weir.pack([1], ranks=2, tokens=5)
