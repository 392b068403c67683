// Texts for readers to trip over: valid files of every kind, and small changes that leave most of a
// file as it was. All from the random numbers given: the same on every machine.
#pragma once

#include <random>
#include <string>

namespace lowtide::fuzz {

using Random = std::mt19937_64;

// A small valid file. All kinds come from here, since a reader must refuse the others' files too.
[[nodiscard]] std::string valid_text(Random& random);
// One change: a byte, a digit, a hole, a piece of JSON, a part of the text elsewhere, a number.
void change(Random& random, std::string& text);

}  // namespace lowtide::fuzz
