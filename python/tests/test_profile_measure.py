"""weir.profile with measure, which times and weighs real tensors on the CPU."""

import re

import pytest
import torch

pytest.importorskip("weir.profile._model")
from test_profile import Block, Item, Model, batch, loss, made

from weir.profile import Profile, ProfileError, profile
from weir.profile._measure import nearest

ON_CPU = {"seq": 256, "device": "cpu", "attention": "math", "measure": True}


def test_times(tmp_path):
    found = profile(lambda: Model([Block(), Block()]), batch, loss, checkpoint=True, **ON_CPU)
    found.save(tmp_path / "model.json")
    assert Profile.load(tmp_path / "model.json") == found
    for piece in found.pieces:
        seconds = found.kinds[piece.kind].seconds
        assert all(a.source == "measured" and a.constant + 256 * a.token + 256 ** 2 * a.square > 0 for action, a in seconds.items() if (piece.name, action) != ("before", "I"))
    low, high = map(float, re.search(r"had ([-+.\d]+)% to ([-+.\d]+)%", found.notes[-1]).groups())
    assert -2 < low <= 0 <= high < 2  # percent
    assert not made("dense").kinds[0].seconds and "measured" not in made("dense").settings


def test_what_fake_tensors_refuse_is_counted_on_real_ones():
    def twice():
        return Model([Block(), Item(), Block()])

    with pytest.raises(ProfileError, match="depends on values"):
        profile(twice, batch, loss, **{**ON_CPU, "measure": False})
    found, plain = profile(twice, batch, loss, **ON_CPU), made("dense")
    assert any("depends on values" in note for note in found.notes)
    assert found.kinds[found.pieces[1].kind].saved.at(100) == plain.kinds[plain.pieces[1].kind].saved.at(100)
    assert found.parameters == sum(p.numel() for p in twice().parameters())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    with pytest.raises(ProfileError, match="PyTorch sees no GPU here"):
        profile(lambda: Model([Block()]), batch, loss, seq=64, measure=True)


@pytest.mark.parametrize("below, most", [(True, 1.1), (False, 1.2)])
def test_nearest(below, most):
    form = {(k, n): 5.0 + 2 * k * n for k in (1, 2) for n in (16, 32, 64)}
    exact = nearest(form, below)
    assert (exact.constant, exact.token, exact.square, exact.above) == (pytest.approx(5), pytest.approx(2), pytest.approx(0, abs=1e-9), pytest.approx(0, abs=1e-4))
    off = nearest({**form, (1, 32): 1.2 * form[1, 32]}, below)
    ratio = (off.constant + 32 * off.token + 32 ** 2 * off.square) / form[1, 32]
    assert (ratio < 1.2 - 1e-9) == below and ratio <= most + 1e-6 or not below and ratio >= 1.2 - 1e-6
