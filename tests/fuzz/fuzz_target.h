// One reader under test. A target defines `accepted`; libfuzzer_entry.cc or seeded_driver.cc calls
// it with text after text, valid ones and changed ones.
#pragma once

#include <string_view>

namespace lowtide::fuzz {

// True: the text is a file of this kind and survived the target's checks. False: refused with the
// one error type that readers may throw. Whatever else happens ends the process: a finding.
[[nodiscard]] bool accepted(std::string_view text);

}  // namespace lowtide::fuzz
