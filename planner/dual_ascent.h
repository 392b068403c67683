// Lower bounds of a relaxation by its Lagrangian dual. Any multipliers >= 0 give a bound: each row
// and each moment is moved into the objective with its multiplier, and what is left is minimised
// over the box of each variable alone. So a bound is proven by evaluating it, however the
// multipliers were found, and it is evaluated in integers: multipliers are rounded to binary
// fractions, bytes and ns are whole, nothing is lost.
//
// The multipliers come from the primal-dual hybrid gradient method with diagonal preconditioning,
// averaging and restarts (Chambolle and Pock 2011; Applegate et al. 2021, "PDLP"). Its work is
// bounded by a count, not a clock. Not thread-safe; the relaxation must outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/relaxation.h"

namespace lowtide::planner {

class DualAscent {
 public:
  // `level`: the rounded bytes that no moment may exceed.
  DualAscent(const Relaxation& relaxation, int64_t level);

  // The best bound found, in ns. `work` counts matrix entries visited; stops early once the bound
  // is within `tolerance` of what this method can reach.
  [[nodiscard]] int64_t run(int64_t work, double tolerance = 1e-3);

 private:
  struct Point {
    std::vector<double> x, row, moment;  // primal; multipliers of rows and moments
  };
  struct Score {
    double primal = 0;         // cost of x
    double bound = 0;          // of the multipliers
    double infeasibility = 0;  // of x, relative
    [[nodiscard]] double error() const;
  };

  void precondition();
  // Reduced costs of the variables at these multipliers.
  void reduce(const Point& point, std::vector<double>& reduced) const;
  // What the rows and moments of `x` lack.
  void shortfall(const std::vector<double>& x, std::vector<double>& row,
                 std::vector<double>& moment) const;
  [[nodiscard]] Score score(const Point& point);
  [[nodiscard]] double step(Point& point);
  void add_to_average(const Point& point, double weight);
  [[nodiscard]] int64_t proven(const Point& point) const;

  const Relaxation& lp_;
  const int64_t level_;
  double cost_scale_ = 1;                      // ns of one unit of cost
  double bytes_scale_ = 1;                     // bytes of one unit of memory
  std::vector<double> cost_, least_, excess_;  // scaled; excess = base - level
  std::vector<double> bytes_;                  // of the spans, scaled
  std::vector<double> tau_, sigma_row_, sigma_moment_;
  std::vector<double> reduced_, next_reduced_, row_, moment_;
  Point average_;
  double average_weight_ = 0;
  double step_size_ = 1;
  double primal_weight_ = 1;
  int64_t iterations_ = 0;
};

}  // namespace lowtide::planner
