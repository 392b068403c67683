#include "hooks/cuda_preload_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace lowtide::hooks {
namespace {

class Text {
 public:
  explicit Text(char (&out)[kReportBytes]) : out_(out) { out_[0] = '\0'; }

  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(out_ + length_, kReportBytes - length_, format, arguments);
    va_end(arguments);
    if (length > 0) length_ = std::min(length_ + static_cast<size_t>(length), kReportBytes - 1);
  }
  // One decimal: a report has one unit, so that its numbers can be compared.
  void add_mib(int64_t bytes) noexcept {
    constexpr int64_t kMiB = int64_t{1} << 20;
    const int64_t tenths = bytes / kMiB * 10 + (bytes % kMiB * 10 + kMiB / 2) / kMiB;
    add("%lld.%lld", static_cast<long long>(tenths / 10), static_cast<long long>(tenths % 10));
  }
  void add_quoted(const char* text) noexcept {
    add("\"");
    for (; *text != '\0'; ++text) {
      const auto c = static_cast<unsigned char>(*text);
      if (c == '"' || c == '\\') {
        add("\\%c", c);
      } else if (c < ' ' || c > '~') {
        add("\\u%04x", c);
      } else {
        add("%c", c);
      }
    }
    add("\"");
  }
  [[nodiscard]] size_t length() const noexcept { return length_; }

 private:
  char* out_;
  size_t length_ = 0;
};

bool used(const PlaceFigures& of) noexcept { return of.allocations > 0 || of.failures > 0; }

long long number(int64_t value) noexcept { return value; }

void add_place(Text& text, const PlaceFigures& of) noexcept {
  text.add("peak ");
  text.add_mib(of.peak_bytes);
  text.add(" MiB, at most %lld segments; now ", number(of.peak_segments));
  text.add_mib(of.live_bytes);
  text.add(" MiB in %lld; %lld allocations, %lld frees\n", number(of.segments),
           number(of.allocations), number(of.frees));
  if (of.largest[0] > 0) {
    text.add("    largest when ");
    text.add_mib(of.noted_bytes);
    text.add(" MiB were live:");
    for (const int64_t bytes : of.largest) {
      if (bytes == 0) break;
      text.add(" ");
      text.add_mib(bytes);
    }
    text.add(" MiB\n");
  }
  if (of.failures > 0) {
    text.add("    %lld requests found no memory, the largest of ", number(of.failures));
    text.add_mib(of.largest_failure_bytes);
    text.add(" MiB\n");
  }
}

void add_place_json(Text& text, const PlaceFigures& of) noexcept {
  text.add("\"live_bytes\": %lld, \"peak_bytes\": %lld, ", number(of.live_bytes),
           number(of.peak_bytes));
  text.add("\"segments\": %lld, \"peak_segments\": %lld, ", number(of.segments),
           number(of.peak_segments));
  text.add("\"allocations\": %lld, \"frees\": %lld, ", number(of.allocations), number(of.frees));
  text.add("\"failures\": %lld, \"largest_failure_bytes\": %lld, ", number(of.failures),
           number(of.largest_failure_bytes));
  text.add("\"noted_bytes\": %lld, \"largest_bytes\": [", number(of.noted_bytes));
  const char* separator = "";
  for (const int64_t bytes : of.largest) {
    if (bytes == 0) break;
    text.add("%s%lld", separator, number(bytes));
    separator = ", ";
  }
  text.add("]}");
}

}  // namespace

bool intercepted_any(const PreloadFigures& figures) noexcept {
  return std::any_of(std::begin(figures.places), std::end(figures.places), used);
}

size_t write_report_text(const ReportHeader& header, const PreloadFigures& figures,
                         char (&out)[kReportBytes]) noexcept {
  Text text(out);
  text.add("lowtide: %s (process %d): ", header.program, header.process);
  if (header.nothing != nullptr) {
    text.add("nothing intercepted: %s\n", header.nothing);
    return text.length();
  }
  text.add("memory that it asked CUDA for\n");
  for (int place = 0; place < kPreloadPlaces; ++place) {
    const PlaceFigures& of = figures.places[place];
    if (!used(of)) continue;
    if (place < kPreloadDevices) {
      text.add("  device %d: ", place);
    } else {
      text.add("  %s memory: ", place == kManagedPlace ? "managed" : "pinned");
    }
    add_place(text, of);
  }
  if (figures.unknown_frees > 0) {
    text.add("  %lld frees of memory that nobody was seen to allocate\n",
             number(figures.unknown_frees));
  }
  if (figures.failed_frees > 0) {
    text.add("  %lld frees failed: what is live may be more than this\n",
             number(figures.failed_frees));
  }
  if (figures.lost > 0) text.add("  %lld allocations are not in this\n", number(figures.lost));
  return text.length();
}

size_t write_report_json(const ReportHeader& header, const PreloadFigures& figures,
                         char (&out)[kReportBytes]) noexcept {
  Text text(out);
  text.add("{\"format\": \"lowtide.cuda-report\", \"version\": 1, \"program\": ");
  text.add_quoted(header.program);
  text.add(", \"process\": %d, \"complete\": %s, \"nothing_intercepted\": ", header.process,
           header.complete ? "true" : "false");
  if (header.nothing != nullptr) {
    text.add_quoted(header.nothing);
  } else {
    text.add("null");
  }
  text.add(",\n \"devices\": [");
  const char* separator = "\n  ";
  for (int device = 0; device < kPreloadDevices; ++device) {
    if (!used(figures.places[device])) continue;
    text.add("%s{\"device\": %d, ", separator, device);
    add_place_json(text, figures.places[device]);
    separator = ",\n  ";
  }
  text.add("],\n \"managed\": {");
  add_place_json(text, figures.places[kManagedPlace]);
  text.add(",\n \"pinned\": {");
  add_place_json(text, figures.places[kPinnedPlace]);
  text.add(",\n \"unknown_frees\": %lld, \"failed_frees\": %lld, \"lost\": %lld}\n",
           number(figures.unknown_frees), number(figures.failed_frees), number(figures.lost));
  return text.length();
}

}  // namespace lowtide::hooks
