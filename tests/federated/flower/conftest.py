import pytest


@pytest.fixture(autouse=True)
def _inside_a_flower_run(monkeypatch):
    """Flower notes in the process which run and node it works for (from 1.41 on); here that is the server of run 1."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    for name, number in {"_run_id": 1, "_task_id": 1, "_node_id": 1000}.items():
        monkeypatch.setattr(TaskIdentity, name, number)
