#include "planner/dual_ascent.h"

#include <algorithm>
#include <cmath>

#include "core/index.h"

namespace lowtide::planner {
namespace {

// Iterations between two looks at the duality gap.
constexpr int64_t kRound = 32;
// Of the multipliers where a bound is proven: fractions of 2^-40 ns and ns per byte.
constexpr int kFraction = 40;
constexpr double kLargestRow = 0x1p90;
constexpr double kLargestMoment = 0x1p48;
// Bytes above this (1 PiB) could overflow a proof in 128 bits.
constexpr int64_t kLargestBytes = int64_t{1} << 50;

__extension__ typedef __int128 Wide;

Wide fraction(double multiplier, double largest) {
  return static_cast<Wide>(std::clamp(multiplier * 0x1p40, 0.0, largest));
}

}  // namespace

double DualAscent::Score::error() const {
  const double gap = std::abs(primal - bound) / (1e-9 + std::abs(primal) + std::abs(bound));
  return std::hypot(gap, infeasibility);
}

DualAscent::DualAscent(const Relaxation& relaxation, int64_t level)
    : lp_(relaxation), level_(level) {
  for (const int64_t cost : lp_.cost_ns) {
    cost_scale_ = std::max(cost_scale_, std::abs(static_cast<double>(cost)));
  }
  for (const auto& span : lp_.spans) {
    bytes_scale_ = std::max(bytes_scale_, std::abs(static_cast<double>(span.bytes)));
  }
  for (const int64_t cost : lp_.cost_ns) cost_.push_back(static_cast<double>(cost) / cost_scale_);
  least_.assign(lp_.least.begin(), lp_.least.end());
  for (const int64_t base : lp_.base_bytes) {
    excess_.push_back(static_cast<double>(base - level_) / bytes_scale_);
  }
  for (const auto& span : lp_.spans) {
    bytes_.push_back(static_cast<double>(span.bytes) / bytes_scale_);
  }
  precondition();
}

// Steps per coordinate that make the method converge with step size 1 (Pock and Chambolle 2011).
void DualAscent::precondition() {
  const size_t variables = cost_.size();
  const size_t moments = excess_.size();
  tau_.assign(variables, 0);
  sigma_row_.assign(least_.size(), 0);
  sigma_moment_.assign(moments + 1, 0);
  for (size_t r = 0; r < least_.size(); ++r) {
    for (const auto& term : lp_.rows[static_cast<int32_t>(r)]) {
      tau_[at(term.variable)] += std::abs(term.factor);
      sigma_row_[r] += std::abs(term.factor);
    }
  }
  for (size_t s = 0; s < bytes_.size(); ++s) {
    const auto& span = lp_.spans[s];
    const double size = std::abs(bytes_[s]);
    tau_[at(span.variable)] += size * (span.end - span.begin);
    sigma_moment_[at(span.begin)] += size;
    sigma_moment_[at(span.end)] -= size;
  }
  for (size_t m = 1; m < moments; ++m) sigma_moment_[m] += sigma_moment_[m - 1];
  sigma_moment_.resize(moments);
  const auto invert = [](std::vector<double>& sums) {
    for (double& sum : sums) sum = sum > 1e-12 ? 1 / sum : 0;
  };
  invert(tau_), invert(sigma_row_), invert(sigma_moment_);
  for (size_t j = 0; j < variables; ++j) {
    if (tau_[j] == 0) tau_[j] = 1;  // in no row: the sign of its cost decides
  }
}

void DualAscent::reduce(const Point& point, std::vector<double>& reduced) const {
  reduced = cost_;
  for (size_t r = 0; r < least_.size(); ++r) {
    const double multiplier = point.row[r];
    if (multiplier == 0) continue;
    for (const auto& term : lp_.rows[static_cast<int32_t>(r)]) {
      reduced[at(term.variable)] -= multiplier * term.factor;
    }
  }
  std::vector<double> sums(excess_.size() + 1);
  for (size_t m = 0; m < excess_.size(); ++m) sums[m + 1] = sums[m] + point.moment[m];
  for (size_t s = 0; s < bytes_.size(); ++s) {
    const auto& span = lp_.spans[s];
    reduced[at(span.variable)] += bytes_[s] * (sums[at(span.end)] - sums[at(span.begin)]);
  }
}

void DualAscent::shortfall(const std::vector<double>& x, std::vector<double>& row,
                           std::vector<double>& moment) const {
  row = least_;
  for (size_t r = 0; r < least_.size(); ++r) {
    for (const auto& term : lp_.rows[static_cast<int32_t>(r)]) {
      row[r] -= x[at(term.variable)] * term.factor;
    }
  }
  moment.assign(excess_.size() + 1, 0);
  for (size_t s = 0; s < bytes_.size(); ++s) {
    const auto& span = lp_.spans[s];
    const double size = bytes_[s] * x[at(span.variable)];
    moment[at(span.begin)] += size;
    moment[at(span.end)] -= size;
  }
  double sum = 0;
  for (size_t m = 0; m < excess_.size(); ++m) {
    sum += moment[m];
    moment[m] = sum + excess_[m];
  }
  moment.pop_back();
}

DualAscent::Score DualAscent::score(const Point& point) {
  Score result;
  for (size_t j = 0; j < cost_.size(); ++j) result.primal += cost_[j] * point.x[j];
  shortfall(point.x, row_, moment_);
  for (size_t r = 0; r < row_.size(); ++r) {
    if (row_[r] > 0) result.infeasibility = std::max(result.infeasibility, row_[r]);
    result.bound += point.row[r] * least_[r];
  }
  const double level = std::max(1.0, static_cast<double>(level_) / bytes_scale_);
  for (size_t m = 0; m < moment_.size(); ++m) {
    if (moment_[m] > 0) result.infeasibility = std::max(result.infeasibility, moment_[m] / level);
    result.bound += point.moment[m] * excess_[m];
  }
  reduce(point, next_reduced_);
  for (size_t j = 0; j < cost_.size(); ++j) {
    if (next_reduced_[j] < 0) result.bound += next_reduced_[j] * lp_.limit[j];
  }
  return result;
}

// One step of the method; returns the step size it took. `reduced_`, and the shortfalls of x in
// row_ and moment_, are kept between steps.
double DualAscent::step(Point& point) {
  static thread_local std::vector<double> x, row, moment, row_lack, moment_lack;
  const size_t rows = least_.size();
  const size_t moments = excess_.size();
  for (;;) {
    const double eta = step_size_;
    x.resize(cost_.size());
    double moved = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      x[j] = std::clamp(point.x[j] - eta / primal_weight_ * tau_[j] * reduced_[j], 0.0,
                        static_cast<double>(lp_.limit[j]));
      const double change = x[j] - point.x[j];
      moved += primal_weight_ * change * change / tau_[j];
    }
    shortfall(x, row_lack, moment_lack);
    double cross = 0;
    const auto ascend = [&](const std::vector<double>& old, const std::vector<double>& sigma,
                            const std::vector<double>& lack, const std::vector<double>& old_lack,
                            std::vector<double>& next, size_t count) {
      next.resize(count);
      for (size_t i = 0; i < count; ++i) {
        const double gradient = 2 * lack[i] - old_lack[i];  // at the extrapolated x
        next[i] = std::max(0.0, old[i] + eta * primal_weight_ * sigma[i] * gradient);
        const double change = next[i] - old[i];
        if (change == 0) continue;
        moved += change * change / (primal_weight_ * sigma[i]);
        cross += change * (old_lack[i] - lack[i]);
      }
    };
    ascend(point.row, sigma_row_, row_lack, row_, row, rows);
    ascend(point.moment, sigma_moment_, moment_lack, moment_, moment, moments);
    const double longest = cross == 0 ? INFINITY : moved / (2 * std::abs(cross));
    const auto k = static_cast<double>(iterations_ + 1);
    step_size_ = std::min((1 - std::pow(k + 1, -0.3)) * longest, (1 + std::pow(k + 1, -0.6)) * eta);
    ++iterations_;
    if (eta > longest) continue;
    point.x.swap(x);
    point.row.swap(row);
    point.moment.swap(moment);
    row_.swap(row_lack);
    moment_.swap(moment_lack);
    reduce(point, reduced_);
    return eta;
  }
}

void DualAscent::add_to_average(const Point& point, double weight) {
  average_weight_ += weight;
  const double share = weight / average_weight_;
  const auto mix = [share](std::vector<double>& average, const std::vector<double>& value) {
    for (size_t i = 0; i < value.size(); ++i) average[i] += share * (value[i] - average[i]);
  };
  mix(average_.x, point.x);
  mix(average_.row, point.row);
  mix(average_.moment, point.moment);
}

// Weak duality, in whole numbers: every multiplier is rounded down to a binary fraction first.
int64_t DualAscent::proven(const Point& point) const {
  std::vector<Wide> reduced(cost_.size());
  for (size_t j = 0; j < reduced.size(); ++j) {
    reduced[j] = static_cast<Wide>(lp_.cost_ns[j]) << kFraction;
  }
  Wide bound = static_cast<Wide>(lp_.base_ns) << kFraction;
  for (size_t r = 0; r < least_.size(); ++r) {
    const Wide multiplier = fraction(point.row[r] * cost_scale_, kLargestRow);
    if (multiplier == 0) continue;
    bound += multiplier * lp_.least[r];
    for (const auto& term : lp_.rows[static_cast<int32_t>(r)]) {
      reduced[at(term.variable)] -= multiplier * term.factor;
    }
  }
  std::vector<Wide> sums(excess_.size() + 1);
  for (size_t m = 0; m < excess_.size(); ++m) {
    const Wide multiplier =
        fraction(point.moment[m] * (cost_scale_ / bytes_scale_), kLargestMoment);
    sums[m + 1] = sums[m] + multiplier;
    bound += multiplier * (lp_.base_bytes[m] - level_);
  }
  for (const auto& span : lp_.spans) {
    reduced[at(span.variable)] += (sums[at(span.end)] - sums[at(span.begin)]) * span.bytes;
  }
  for (size_t j = 0; j < reduced.size(); ++j) {
    if (reduced[j] < 0) bound += reduced[j] * lp_.limit[j];
  }
  // Times are whole: what is above n is at least n + 1.
  return static_cast<int64_t>((bound + ((Wide{1} << kFraction) - 1)) >> kFraction);
}

int64_t DualAscent::run(int64_t work, double tolerance) {
  Point point{std::vector<double>(cost_.size()), std::vector<double>(least_.size()),
              std::vector<double>(excess_.size())};
  const int64_t plain = proven(point);
  for (const int64_t base : lp_.base_bytes) {
    if (base > kLargestBytes) return plain;
  }
  // Where nothing is above the level, nothing needs to be paid.
  if (std::none_of(excess_.begin(), excess_.end(), [](double e) { return e > 0; })) return plain;

  double cost_norm = 0;
  double side_norm = 0;
  for (size_t j = 0; j < cost_.size(); ++j) cost_norm += cost_[j] * cost_[j] * tau_[j];
  for (size_t r = 0; r < least_.size(); ++r) side_norm += least_[r] * least_[r] * sigma_row_[r];
  for (size_t m = 0; m < excess_.size(); ++m) {
    if (excess_[m] > 0) side_norm += excess_[m] * excess_[m] * sigma_moment_[m];
  }
  if (cost_norm > 0 && side_norm > 0) primal_weight_ = std::sqrt(cost_norm / side_norm);

  Point start = point;
  Point best = point;
  average_ = point;
  shortfall(point.x, row_, moment_);
  reduce(point, reduced_);
  double best_bound = -INFINITY;
  double start_error = INFINITY;
  double last_error = INFINITY;
  int64_t since_restart = 0;
  size_t terms = 0;
  for (size_t r = 0; r < least_.size(); ++r) terms += lp_.rows[static_cast<int32_t>(r)].size();
  const int64_t per_step =
      2 * static_cast<int64_t>(terms + 2 * bytes_.size() + excess_.size() + cost_.size());
  const int64_t steps = work / std::max<int64_t>(per_step, 1);

  while (iterations_ < steps) {
    for (int64_t k = 0; k < kRound; ++k) add_to_average(point, step(point));
    since_restart += kRound;
    const Score average_score = score(average_);
    const Score point_score = score(point);
    if (average_score.bound > best_bound) best_bound = average_score.bound, best = average_;
    if (point_score.bound > best_bound) best_bound = point_score.bound, best = point;
    const bool to_average = average_score.error() < point_score.error();
    const double error = std::min(average_score.error(), point_score.error());
    if (error < tolerance) break;
    const bool much = error < 0.2 * start_error;
    const bool enough = error < 0.8 * start_error && error > last_error;
    const bool late = since_restart > iterations_ * 36 / 100;
    last_error = error;
    // `score` has left the shortfalls of `point` in row_ and moment_, as `step` expects them.
    if (!much && !enough && !late) continue;
    if (to_average) point = average_;
    double x_moved = 0;
    double y_moved = 0;
    for (size_t j = 0; j < point.x.size(); ++j) {
      x_moved += (point.x[j] - start.x[j]) * (point.x[j] - start.x[j]) / tau_[j];
    }
    const auto dual_moved = [&](const std::vector<double>& a, const std::vector<double>& b,
                                const std::vector<double>& sigma) {
      for (size_t i = 0; i < a.size(); ++i) {
        if (sigma[i] > 0) y_moved += (a[i] - b[i]) * (a[i] - b[i]) / sigma[i];
      }
    };
    dual_moved(point.row, start.row, sigma_row_);
    dual_moved(point.moment, start.moment, sigma_moment_);
    if (x_moved > 0 && y_moved > 0) {
      primal_weight_ = std::sqrt(primal_weight_ * std::sqrt(y_moved / x_moved));
    }
    start = point;
    average_ = point;
    average_weight_ = 0;
    start_error = error;
    last_error = INFINITY;
    since_restart = 0;
    shortfall(point.x, row_, moment_);
    reduce(point, reduced_);
  }
  return std::max(plain, proven(best));
}

}  // namespace lowtide::planner
