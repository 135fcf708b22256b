import numpy as np
import pytest

from blindsight.errors import InputError, MessageError
from blindsight.federated.flower.flattening import aligned, flatten, unflatten
from tests.federated.flower.federation import model, numpy_of


def example():
    return model(
        a=np.arange(6, dtype=np.float32).reshape(2, 3), count=np.array(7), b=np.array(0.5), c=np.zeros(2, np.float16)
    )


def test_floats_become_one_vector_and_come_back_with_their_types():
    arrays = example()
    vector = flatten(arrays)
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 0.5, 0, 0]
    back = numpy_of(unflatten(vector + 1, arrays))
    for name, value in numpy_of(arrays).items():
        assert back[name].dtype == value.dtype
        assert np.array_equal(back[name], value if name == "count" else value + 1)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(InputError, match="hold 9 numbers; got 10"):
        unflatten(np.zeros(10), example())


def test_arrays_are_put_in_the_order_of_the_model_at_any_precision():
    like = model(a=np.zeros(2, np.float32), b=np.ones(1, np.float32))
    assert flatten(aligned(model(b=np.ones(1), a=np.zeros(2)), like)).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": np.zeros((2, 4))}, r"'a' is floating point of shape \(2, 3\).*shape \(2, 4\) here"),
        ({"a": np.zeros((2, 3), np.int64)}, "int64 of shape"),
        ({}, "'a' is floating point of shape .* not there here"),
        ({"a": np.zeros((2, 3)), "z": np.zeros(1)}, "'z' is not there in the model of the run"),
    ],
)
def test_arrays_of_another_model_are_refused(arrays, sentence):
    with pytest.raises(MessageError, match=sentence):
        aligned(model(**arrays), model(a=np.zeros((2, 3))))
