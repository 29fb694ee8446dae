"""The file of a profile, against what earlier versions of the package wrote."""

import json
import pathlib

import pytest

from weir.profile import SCHEMA, Amount, Kind, Parameters, Piece, Profile, ProfileError, Shared, Tied

FIXTURES = pathlib.Path(__file__).parents[2] / "cmd/weir/internal/fit/testdata/formats"


def test_fixture(tmp_path):
    a = Amount(1, 2, 3, 4, 5, 6, 8, 9, 10, 0.5, "kernel", Amount(token=7))
    by_action = {action: a for action in "FBIW"}
    layer = Kind(Parameters(5, 4, 3, 20, 8), a, a, a, a, a, a, {action: [a] for action in "FBIW"}, by_action, by_action)
    profile = Profile(
        "Model", {"device": "cuda"}, [8, 16, 24], [[32, 8]], [Piece("0", 0), Piece("1", 0)], [layer],
        [Shared([0, 1], a)], [Tied("weight", [0, 1], 5, 5, 20)], a, ["A note."])
    path = tmp_path / "profile.json"
    profile.save(path)
    fixture = FIXTURES / f"profile-{SCHEMA}.json"
    assert path.read_text() == fixture.read_text(), "raise SCHEMA, or write the fixture again if no version with it was released"
    assert Profile.load(fixture) == profile
    path.write_text(json.dumps(json.loads(fixture.read_text()) | {"schema": SCHEMA + 1}))
    with pytest.raises(ProfileError, match=f"found schema {SCHEMA + 1}, expected {SCHEMA}: write the profile again with this version of weir"):
        Profile.load(path)
