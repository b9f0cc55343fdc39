#include "core/tensor/turn.h"

#include <vector>

#include "support.h"

namespace singa::test {
namespace {

template <class T>
class TurnTyped : public testing::Test {};
using TurnTypes = testing::Types<uint8_t, uint16_t, uint32_t, uint64_t, float>;
TYPED_TEST_SUITE(TurnTyped, TurnTypes);

/// Squares, and what is left beside them; nothing else is written.
TYPED_TEST(TurnTyped, IsTheDefinition) {
  using T = TypeParam;
  for (const int64_t rows : {1, 7, 16, 19, 40})
    for (const int64_t columns : {1, 4, 8, 16, 33}) {
      const int64_t from_step = columns + 3, to_step = rows + 2;
      std::vector<T> from(static_cast<size_t>(rows * from_step)),
          to(static_cast<size_t>(columns * to_step), T(77));
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i % 76);
      Turn(from.data(), from_step, rows, columns, to.data(), to_step);
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t r = 0; r < to_step; ++r)
          ASSERT_EQ(to[static_cast<size_t>(c * to_step + r)],
                    r < rows ? from[static_cast<size_t>(r * from_step + c)] : T(77))
              << rows << " x " << columns << ": " << r << ", " << c;
    }
}

}  // namespace
}  // namespace singa::test
