#include "singa/operation/softmax.h"

#include "support.h"

namespace singa::test {
namespace {

TEST(Softmax, ExtremeLanes) {
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto expect = [](const Vector& x, const Vector& y, const Vector& log_y) {
      const Shape shape{1, static_cast<int64_t>(x.size())};
      const Vector none(x.size(), 0.0);
      ExpectNear(Softmax(FromValues(shape, x)), y, none, "softmax");
      ExpectNear(LogSoftmax(FromValues(shape, x)), log_y, none, "log-softmax");
    };
    const double half = std::log(0.5);
    expect({3e38, -3e38}, {1, 0}, {0, -kInf});
    expect({1e4, 1e4}, {0.5, 0.5}, {half, half});
    expect({-1e4, -1e4}, {0.5, 0.5}, {half, half});
    expect({-kInf, 0, 0}, {0, 0.5, 0.5}, {-kInf, half, half});
    expect({-kInf, -kInf}, {kNan, kNan}, {kNan, kNan});
    expect({kInf, 0}, {kNan, kNan}, {kNan, kNan});
    expect({kNan, 0, 1}, {kNan, kNan, kNan}, {kNan, kNan, kNan});
  }
}

TEST(Softmax, NothingToDo) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    for (const Shape& shape : {Shape{0, 5}, Shape{5, 0}, Shape{2, 0, 3}, Shape{2, 3, 0}}) {
      const Tensor x(shape);
      EXPECT_EQ(Softmax(x).shape(), shape);
      EXPECT_EQ(LogSoftmax(x).shape(), shape);
      EXPECT_EQ(SoftmaxBackward(x, x).shape(), shape);
      EXPECT_EQ(LogSoftmaxBackward(x, x).shape(), shape);
    }
  }
}

}  // namespace
}  // namespace singa::test
