"""Where nothing else is said, updates run step by step: a handful is done before a compiler is."""

import pytest


@pytest.fixture(autouse=True)
def eager_unless_compiled(request):
    if "compiled" not in request.keywords:
        request.getfixturevalue("eager")
