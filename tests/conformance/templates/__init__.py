"""One file for each statement that the suite checks; importing this package enters all of them."""

from . import (
    aliasing,  # noqa: F401
    autocast,  # noqa: F401
    autocast_lists,  # noqa: F401
    compiled,  # noqa: F401
    compiled_shapes,  # noqa: F401
    compiled_writes,  # noqa: F401
    derivatives,  # noqa: F401
    determinism,  # noqa: F401
    errors,  # noqa: F401
    fake,  # noqa: F401
    foreach,  # noqa: F401
    layouts,  # noqa: F401
    modules,  # noqa: F401
    modules_state,  # noqa: F401
    optimizers,  # noqa: F401
    out,  # noqa: F401
    sparse,  # noqa: F401
    values,  # noqa: F401
    variants,  # noqa: F401
)
