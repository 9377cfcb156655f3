"""What the tests of the notebook share."""

import pytest
from IPython.display import DisplayHandle


@pytest.fixture
def shown(monkeypatch):
    """Every bundle that was shown, in order."""
    bundles = []

    def keep(self, bundle, raw):
        assert raw  # else the bundle's own text would be shown
        bundles.append(bundle)

    for name in ("display", "update"):
        monkeypatch.setattr(DisplayHandle, name, keep)
    return bundles
