import pytest

from blindsight.errors import MessageError
from blindsight.federated.directory import Directory
from blindsight.federated.identity import Identity
from blindsight.federated.members import Members
from blindsight.federated.sums import greeting
from blindsight.federated.sums.greeting import greet, hello
from blindsight.learn.dphe.terms import KEY_GENERATOR


@pytest.fixture
def identities(tmp_path):
    return {name: Identity.create(tmp_path / name, name) for name in ("ann", "bob", KEY_GENERATOR)}


@pytest.fixture
def directory(identities):
    return Directory(Members({name: identity.public.fingerprint for name, identity in identities.items()}))


def enter(directory, node, identity, role="user"):
    challenge, message = hello(node)
    directory.enter(node, tuple(greet(identity, role, (message,), node)), challenge)


def test_members_get_in_under_their_names(directory, identities):
    enter(directory, 1, identities["ann"])
    enter(directory, 2, identities[KEY_GENERATOR], "key-generator")
    assert directory.keep({1, 2, 3}) == {"ann": 1, KEY_GENERATOR: 2}
    assert directory.known == {1, 2}


def test_strangers_and_wrong_keys_and_wrong_roles_do_not(directory, identities, tmp_path):
    enter(directory, 1, Identity.create(tmp_path / "eve", "eve"))
    enter(directory, 2, Identity.create(tmp_path / "false ann", "ann"))
    enter(directory, 3, identities["bob"], "key-generator")
    enter(directory, 4, identities[KEY_GENERATOR])
    assert not directory.nodes
    assert set(directory.refused) == {1, 2, 3, 4}
    assert "Somebody else" in directory.refused[2]


def test_an_answer_to_another_hello_is_refused(directory, identities):
    _, message = hello(1)
    directory.enter(1, tuple(greet(identities["ann"], "user", (message,), 1)), bytes(32))
    directory.enter(2, (b"",), bytes(32))
    assert not directory.nodes
    assert "another hello" in directory.refused[1]
    assert "two parts" in directory.refused[2]


def test_one_node_cannot_greet_with_anothers_signature(directory, identities):
    challenge, message = hello(1)
    _, signed = greet(identities["ann"], "user", (message,), 1)
    directory.enter(1, (identities["bob"].public.to_bytes(), signed), challenge)
    assert not directory.nodes


def test_a_node_cannot_pass_for_another_by_handing_its_hello_on(directory, identities):
    challenge, message = hello(1)
    with pytest.raises(MessageError, match=r"node 2.*node 1"):
        greet(identities["ann"], "user", (message,), 2)
    _, altered = hello(2, lambda count: challenge)  # as the node in between would put it to the other
    directory.enter(1, tuple(greet(identities["ann"], "user", (altered,), 2)), challenge)
    assert not directory.nodes
    assert "'ann' is that of node 2" in directory.refused[1]
    for parts in ((), (message, message)):
        with pytest.raises(MessageError, match="one part"):
            greet(identities["ann"], "user", parts, 1)


def test_of_two_nodes_with_the_same_keys_the_first_stays(directory, identities):
    enter(directory, 1, identities["ann"])
    enter(directory, 2, identities["ann"])
    assert directory.nodes == {"ann": 1}
    assert "two nodes say they are 'ann'" in directory.refused[2]
    enter(directory, 1, identities["ann"])
    assert directory.nodes == {"ann": 1}


def test_a_member_that_was_killed_and_started_anew_gets_in_once_its_old_node_is_gone(directory, identities):
    enter(directory, 1, identities["ann"])
    enter(directory, 2, identities["ann"])  # the network has not noticed yet that node 1 is dead
    assert directory.keep({1, 2}) == {"ann": 1}
    assert directory.known == {1, 2}
    assert directory.keep({2}) == {}
    assert directory.known == set()
    enter(directory, 2, identities["ann"])
    assert directory.keep({2}) == {"ann": 2}


def test_nodes_of_another_protocol_are_told_to_install_the_same_version(directory, identities, monkeypatch):
    challenge, message = hello(1)
    monkeypatch.setattr(greeting, "PROTOCOL", 2)
    theirs = greet_as_another_version(identities["ann"], message, monkeypatch)
    monkeypatch.setattr(greeting, "PROTOCOL", 1)
    directory.enter(1, theirs, challenge)
    assert "speaks protocol 2" in directory.refused[1]
    assert "same version" in directory.refused[1]


def greet_as_another_version(identity, message, monkeypatch):
    """Return the greeting of a version that does not mind who asks."""
    with monkeypatch.context() as patch:
        patch.setattr(greeting, "_check_protocol", lambda *_: None)
        return tuple(greet(identity, "user", (message,), 1))
