"""Copies a source of the runtime with faults planted into it: plant.py SOURCE COPY.

Each fault is one expression of the source, changed under a switch (planted.h). An expression that
is not there as often as expected stops the build: whoever changed it says here how to break it now.
"""

import pathlib
import sys

# file: (text, how often, what stands there instead)
FAULTS = {
    "replay.cc": [
        (
            "record->rng->restore();",
            1,
            "if (!testing::planted(testing::Fault::no_rng_restore)) record->rng->restore();",
        ),
        (
            "grad_mode(record->grad_mode);",
            1,
            "grad_mode(testing::planted(testing::Fault::no_grad_mode_restore)"
            " ? c10::GradMode::is_enabled() : record->grad_mode);",
        ),
        (
            "storage = storage ? clone_storage(storage)",
            1,
            "storage = testing::planted(testing::Fault::batch_norm_not_cloned)"
            " ? StoragePtr::reclaim_copy("
            "const_cast<c10::StorageImpl*>(tape_->external(ref.index).original))"
            " : storage ? clone_storage(storage)",
        ),
        (
            "external.counter.current_version() != external.counter_value &&",
            1,
            "external.counter.current_version() != external.counter_value &&"
            " !testing::planted(testing::Fault::no_version_check) &&",
        ),
        (
            "slot.keep_after_recompute",
            2,
            "(slot.keep_after_recompute || testing::planted(testing::Fault::keep_bit_ignored))",
        ),
    ],
    "saved_holder.cc": [
        (
            "if (current == version_)",
            1,
            "if (current == version_ || testing::planted(testing::Fault::no_version_check))",
        ),
    ],
    "trace_builder.cc": [
        (
            "return std::move(trace_);",
            1,
            "if (testing::planted(testing::Fault::workspace_dropped))"
            " testing::drop_workspace(trace_);\n  return std::move(trace_);",
        ),
    ],
}


def plant(source):
    text = source.read_text(encoding="utf-8")
    for old, count, new in FAULTS[source.name]:
        found = text.count(old)
        if found != count:
            raise SystemExit(
                f"plant.py: '{old}' is {found} times in {source.name}, expected {count}. "
                "Fix: say in tests/mutants/plant.py what the fault is in the changed source"
            )
        text = text.replace(old, new)
    return f'#include "mutants/planted.h"\n#line 1 "{source}"\n{text}'


def main():
    source, copy = (pathlib.Path(argument) for argument in sys.argv[1:])
    copy.write_text(plant(source), encoding="utf-8")


if __name__ == "__main__":
    main()
