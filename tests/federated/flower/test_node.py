import pytest

from blindsight.errors import InputError
from blindsight.federated.flower.node import desk_of
from tests.federated.village import make_home

PIN = "SHA256:" + "A" * 43


def test_a_node_can_insist_on_a_minimum_per_position(tmp_path):
    config = {"home": str(make_home(tmp_path, "ann").path), "key-generator": PIN}
    assert desk_of(config).minimum_per_position == 1
    assert desk_of({**config, "minimum-per-position": 3}).minimum_per_position == 3
    for wrong in (0, "3", 1.5):
        with pytest.raises(InputError, match="minimum-per-position"):
            desk_of({**config, "minimum-per-position": wrong})
