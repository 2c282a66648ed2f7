"""The manifests, rendered once."""

import pytest

from tests.support.kubernetes import COMPONENTS, Manifest, Tree


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A copy of k8s/ with tokens."""
    return Tree(tmp_path_factory.mktemp("manifests"))


@pytest.fixture(scope="session")
def everything(tree: Tree) -> dict[str, list[Manifest]]:
    """Each overlay with each set of components, and what stands beside them, by name."""
    return tree.everything()


@pytest.fixture(scope="session")
def whole(tree: Tree) -> list[Manifest]:
    """Everything that there is, put together."""
    return tree.render("embed-scaled", COMPONENTS)
