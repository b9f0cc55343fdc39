#include "singa/operation/linalg.h"

#include "model/operation/conv/conv_naive.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"
#include "singa/dispatch/plan_cache.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::ExpectError;
using test::ExpectSums;
using test::Flat;
using test::ForEachIndex;
using test::FromValues;
using test::Index;
using test::Random;
using test::RandomTensor;
using test::Sums;
using test::Values;

using LinalgTest = test::EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, LinalgTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return PreferenceName(info.param); });

constexpr DType kDTypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};

/// Flat position in a stack of matrices. Broadcast axes (length 1) stay at 0, and `trans` swaps row
/// and column.
size_t At(const Shape& shape, bool trans, const Index& batch, int64_t row, int64_t col) {
  Index index;
  const int rank = shape.rank();
  const size_t extra = batch.size() - static_cast<size_t>(rank - 2);
  for (int i = 0; i < rank - 2; ++i) index.push_back(shape[i] == 1 ? 0 : batch[extra + i]);
  index.push_back(trans ? col : row);
  index.push_back(trans ? row : col);
  return Flat(shape, index);
}

/// Calls product(a, b, y) with flat positions for each multiply-add.
template <class Product>
void ForEachProduct(const Shape& a, const Shape& b, const Shape& y, bool ta, bool tb, int64_t k,
                    const Product& product) {
  ForEachIndex(y, [&](const Index& index) {
    const Index batch(index.begin(), index.end() - 2);
    const int64_t row = index[index.size() - 2], col = index.back();
    for (int64_t i = 0; i < k; ++i)
      product(At(a, ta, batch, row, i), At(b, tb, batch, i, col), Flat(y, index));
  });
}

/// Checks MatMul for a_shape and b_shape; a2, b2 and y2 are the shapes with vectors as matrices.
void CheckMatMulCase(Random& random, const Shape& a_shape, const Shape& b_shape, const Shape& a2,
                     const Shape& b2, const Shape& y_shape, const Shape& y2, bool ta, bool tb,
                     DType dtype) {
  SCOPED_TRACE(a_shape.ToString() + (ta ? "^T @ " : " @ ") + b_shape.ToString() +
               (tb ? "^T " : " ") + DTypeName(dtype));
  const Tensor a = AnyTensor(random, a_shape, dtype), b = AnyTensor(random, b_shape, dtype);
  const Tensor dy = AnyTensor(random, y_shape, dtype);
  const std::vector<double> as = Values(a), bs = Values(b), dys = Values(dy);
  const int64_t k = a2[a2.rank() - (ta ? 2 : 1)];
  Sums y(y2.Count()), da(a2.Count()), db(b2.Count());
  ForEachProduct(a2, b2, y2, ta, tb, k, [&](size_t ai, size_t bi, size_t yi) {
    y.Add(yi, as[ai] * bs[bi]);
    da.Add(ai, dys[yi] * bs[bi]);
    db.Add(bi, as[ai] * dys[yi]);
  });
  ExpectSums(MatMul(a, b, ta, tb), y_shape, y, "y");
  const bool need_a = random.Coin(), need_b = random.Coin();
  const std::vector<Tensor> gradients = MatMulBackward(dy, a, b, ta, tb, need_a, need_b);
  ASSERT_EQ(gradients.size(), 2u);
  ASSERT_EQ(gradients[0].empty(), !need_a);
  ASSERT_EQ(gradients[1].empty(), !need_b);
  // A 16-bit gradient is also rounded before it is summed over broadcast batches.
  if (need_a) ExpectSums(gradients[0], a_shape, da, "da");
  if (need_b) ExpectSums(gradients[1], b_shape, db, "db");
}

TEST_P(LinalgTest, MatMulRandom) {
  Random random(1);
  int vectors = 0, broadcast = 0;
  for (int i = 0; i < 240; ++i) {
    const int64_t m = random.Int(1, 24), n = random.Int(1, 24), k = random.Int(1, 40);
    const bool a_vector = random.Int(0, 9) == 0, b_vector = random.Int(0, 9) == 0;
    const bool ta = !a_vector && random.Coin(), tb = !b_vector && random.Coin();
    Shape a_batch, b_batch, batch;
    const int rank = static_cast<int>(random.Int(0, 2));
    for (int j = 0; j < rank; ++j) {
      const int64_t length = random.Int(1, 4);
      const int64_t way = random.Int(0, 3);
      a_batch.push_back(way == 0 ? 1 : length);
      b_batch.push_back(way == 1 ? 1 : length);
      batch.push_back(length);
      broadcast += way < 2 && length > 1;
    }
    if (a_vector) a_batch = {};
    if (b_vector) b_batch = {};
    if (!a_vector && random.Int(0, 3) == 0) b_batch = {};  // one matrix for all
    batch = BroadcastShapes("test", a_batch, b_batch);
    auto stack = [](Shape shape, int64_t rows, int64_t cols) {
      shape.push_back(rows);
      shape.push_back(cols);
      return shape;
    };
    const Shape a2 = a_vector ? Shape{1, k} : ta ? stack(a_batch, k, m) : stack(a_batch, m, k);
    const Shape b2 = b_vector ? Shape{k, 1} : tb ? stack(b_batch, n, k) : stack(b_batch, k, n);
    const Shape y2 = stack(batch, a_vector ? 1 : m, b_vector ? 1 : n);
    Shape y = batch;
    if (!a_vector) y.push_back(m);
    if (!b_vector) y.push_back(n);
    vectors += a_vector || b_vector;
    CheckMatMulCase(random, a_vector ? Shape{k} : a2, b_vector ? Shape{k} : b2, a2, b2, y, y2, ta,
                    tb, kDTypes[i % 5]);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(vectors, 20);
  EXPECT_GT(broadcast, 50);
}

TEST_P(LinalgTest, MatMulOfSeveralBlocks) {
  Random random(2);
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const Shape a = ta ? Shape{12, 200} : Shape{200, 12};
      const Shape b = tb ? Shape{520, 12} : Shape{12, 520};
      CheckMatMulCase(random, a, b, a, b, {200, 520}, {200, 520}, ta, tb, kFloat32);
    }
}

TEST_P(LinalgTest, MatMulOfTransposedViewsCopiesNothing) {
  Random random(3);
  const Tensor a = RandomTensor(random, {30, 20}), b = RandomTensor(random, {40, 30});
  const std::vector<double> expected = Values(MatMul(a, b, true, true));
  const uint64_t before = DefaultDevice()->memory().allocations;
  const Tensor y = MatMul(a.Transpose(), b.Transpose());
  EXPECT_EQ(Values(y), expected);
  EXPECT_LE(DefaultDevice()->memory().allocations - before, 3u);  // y, perhaps a workspace; Values
}

TEST_P(LinalgTest, EmptyMatrices) {
  EXPECT_EQ(MatMul(Tensor({0, 3}), Tensor({3, 4})).shape(), Shape({0, 4}));
  EXPECT_EQ(MatMul(Tensor({5, 0, 3}), Tensor({3, 4})).shape(), Shape({5, 0, 4}));
  EXPECT_EQ(Values(MatMul(Tensor({2, 0}), Tensor({0, 3}))), std::vector<double>(6, 0.0));
  EXPECT_EQ(Values(LinearForward(Tensor({2, 0}), Tensor({0, 3}), FromValues({3}, {1, 2, 3}))),
            (std::vector<double>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(Values(Gemm(Tensor({1, 0}), Tensor({0, 2}), FromValues({2}, {1, 2}), 1, 3)),
            (std::vector<double>{3, 6}));
  const std::vector<Tensor> gradients =
      LinearBackward(Tensor({0, 3}), Tensor({0, 2}), Tensor({2, 3}), false, true, true, true);
  EXPECT_EQ(gradients[0].shape(), Shape({0, 2}));
  EXPECT_EQ(Values(gradients[1]), std::vector<double>(6, 0.0));
  EXPECT_EQ(Values(gradients[2]), std::vector<double>(3, 0.0));
}

TEST_P(LinalgTest, GemmRandom) {
  Random random(4);
  for (int i = 0; i < 220; ++i) {
    const int64_t m = random.Int(1, 40), n = random.Int(1, 40), k = random.Int(1, 30);
    const bool ta = random.Coin(), tb = random.Coin();
    const DType dtype = kDTypes[i % 5];
    const Shape a_shape = ta ? Shape{k, m} : Shape{m, k}, b_shape = tb ? Shape{n, k} : Shape{k, n};
    const Shape c_shapes[] = {{}, {1}, {n}, {1, n}, {m, 1}, {m, n}};
    const Shape c_shape = c_shapes[random.Int(0, 5)];
    const bool has_c = random.Int(0, 4) > 0;
    const double factors[] = {1, 1, -1, 0.5, 2, 0};
    const double alpha = factors[random.Int(0, 5)], beta = factors[random.Int(0, 5)];
    const Tensor a = AnyTensor(random, a_shape, dtype), b = AnyTensor(random, b_shape, dtype);
    const Tensor c = has_c ? AnyTensor(random, c_shape, dtype) : Tensor();
    const Tensor dy = AnyTensor(random, {m, n}, dtype);
    SCOPED_TRACE(a.ToString() + " " + b.ToString() + " C " + c.ToString() + " alpha " +
                 std::to_string(alpha) + " beta " + std::to_string(beta));
    const std::vector<double> as = Values(a), bs = Values(b), dys = Values(dy);
    Sums y(m * n), da(m * k), db(k * n), dc(c_shape.Count());
    ForEachProduct(a_shape, b_shape, {m, n}, ta, tb, k, [&](size_t ai, size_t bi, size_t yi) {
      y.Add(yi, alpha * as[ai] * bs[bi]);
      da.Add(ai, alpha * dys[yi] * bs[bi]);
      db.Add(bi, alpha * as[ai] * dys[yi]);
    });
    const std::vector<double> cs = has_c ? Values(c) : std::vector<double>();
    for (int64_t row = 0; row < m; ++row)
      for (int64_t col = 0; col < n; ++col) {
        const int64_t rows = c_shape.rank() > 1 ? c_shape[0] : 1;
        const int64_t cols = c_shape.rank() > 0 ? c_shape.back() : 1;
        const size_t at = static_cast<size_t>((rows > 1 ? row : 0) * cols + (cols > 1 ? col : 0));
        if (has_c) y.Add(row * n + col, beta * cs[at]);
        dc.Add(at, beta * dys[row * n + col]);
      }
    ExpectSums(Gemm(a, b, c, alpha, beta, ta, tb), {m, n}, y, "y");
    const bool need_a = random.Coin(), need_b = random.Coin(), need_c = random.Coin();
    const std::vector<Tensor> gradients =
        GemmBackward(dy, a, b, c_shape, alpha, beta, ta, tb, need_a, need_b, need_c);
    ASSERT_EQ(gradients[0].empty(), !need_a);
    ASSERT_EQ(gradients[1].empty(), !need_b);
    ASSERT_EQ(gradients[2].empty(), !need_c);
    if (need_a) ExpectSums(gradients[0], a_shape, da, "da");
    if (need_b) ExpectSums(gradients[1], b_shape, db, "db");
    if (need_c) ExpectSums(gradients[2], c_shape, dc, "dc");
    if (HasFatalFailure()) return;
  }
}

TEST_P(LinalgTest, LinearRandom) {
  Random random(5);
  for (int i = 0; i < 220; ++i) {
    const int64_t batch = random.Int(1, 40), in = random.Int(1, 60), out = random.Int(1, 50);
    const bool transposed = random.Coin(), has_b = random.Coin();
    const DType dtype = kDTypes[i % 5];
    const Shape w_shape = transposed ? Shape{out, in} : Shape{in, out};
    const Shape x_shape = i % 7 == 0 ? Shape{3, batch, in} : Shape{batch, in};
    Shape y_shape = x_shape;
    y_shape[y_shape.rank() - 1] = out;
    const int64_t rows = y_shape.Count() / out;
    const Tensor x = AnyTensor(random, x_shape, dtype), w = AnyTensor(random, w_shape, dtype);
    const Tensor b = has_b ? AnyTensor(random, {out}, dtype) : Tensor();
    const Tensor dy = AnyTensor(random, y_shape, dtype);
    SCOPED_TRACE(x.ToString() + " " + w.ToString() + " " + b.ToString());
    const std::vector<double> xs = Values(x), ws = Values(w), dys = Values(dy);
    Sums y(rows * out), dx(rows * in), dw(in * out), db(out);
    ForEachProduct({rows, in}, w_shape, {rows, out}, false, transposed, in,
                   [&](size_t xi, size_t wi, size_t yi) {
                     y.Add(yi, xs[xi] * ws[wi]);
                     dx.Add(xi, dys[yi] * ws[wi]);
                     dw.Add(wi, xs[xi] * dys[yi]);
                   });
    const std::vector<double> bs = has_b ? Values(b) : std::vector<double>();
    for (int64_t yi = 0; yi < rows * out; ++yi) {
      if (has_b) y.Add(yi, bs[yi % out]);
      db.Add(yi % out, dys[yi]);
    }
    ExpectSums(LinearForward(x, w, b, transposed), y_shape, y, "y");
    Sums rectified = y;
    for (double& v : rectified.value) v = std::max(v, 0.0);
    ExpectSums(LinearForward(x, w, b, transposed, true), y_shape, rectified, "relu(y)");
    const bool need_x = random.Coin(), need_w = random.Coin(), need_b = random.Coin();
    const std::vector<Tensor> gradients =
        LinearBackward(dy, x, w, transposed, need_x, need_w, need_b);
    ASSERT_EQ(gradients[0].empty(), !need_x);
    ASSERT_EQ(gradients[1].empty(), !need_w);
    ASSERT_EQ(gradients[2].empty(), !need_b);
    if (need_x) ExpectSums(gradients[0], x_shape, dx, "dx");
    if (need_w) ExpectSums(gradients[1], w_shape, dw, "dW");
    if (need_b) ExpectSums(gradients[2], {out}, db, "db");
    if (HasFatalFailure()) return;
  }
}

TEST(LinalgReferenceTest, SameBitsForAnyNumberOfThreads) {
  Random random(6);
  const Tensor a = RandomTensor(random, {3, 300, 90}), b = RandomTensor(random, {90, 600});
  const Preference before = GetPreference();
  const int threads_before = NumThreads();
  SetPreference(Preference::kReference);
  std::vector<double> first;
  for (int threads : {1, 2, 3, 7}) {
    SetNumThreads(threads);
    const std::vector<double> y = Values(MatMul(a, b));
    if (first.empty()) first = y;
    EXPECT_EQ(y, first) << threads << " threads";
  }
  SetNumThreads(threads_before);
  SetPreference(before);
}

TEST_P(LinalgTest, WrongCalls) {
  using E = std::invalid_argument;
  const Tensor a({2, 3}), b({3, 4}), y({2, 4});
  ExpectError<E>([&] { MatMul(Tensor(), b); }, "[MatMul] a is an empty tensor");
  ExpectError<E>([&] { MatMul(a, Tensor({4, 3})); }, "a (2, 3) and b (4, 3) do not fit");
  ExpectError<E>([&] { MatMul(a, b, true); }, "a (2, 3) transposed and b (3, 4) do not fit");
  ExpectError<E>([&] { MatMul(Tensor(Shape{}), b); }, "needs vectors or matrices");
  ExpectError<E>([&] { MatMul(Tensor({2, 5, 3}), Tensor({4, 3, 6})); }, "[MatMul]");
  ExpectError<TypeError>([&] { MatMul(a.AsType(kInt32), b.AsType(kInt32)); }, "float type");
  ExpectError<TypeError>([&] { MatMul(a, b.AsType(kFloat64)); }, "differ in type");
  ExpectError<E>([&] { MatMul(a, b.ToDevice(CreateCpuDevice())); }, "b is on ");
  ExpectError<E>([&] { MatMulBackward(a, a, b, false, false, true, true); },
                 "[MatMulBackward] dy must have shape (2, 4), got (2, 3)");
  ExpectError<E>([&] { Gemm(Tensor({1, 2, 3}), b, Tensor()); }, "[Gemm] needs matrices");
  ExpectError<E>([&] { Gemm(a, b, Tensor({3})); }, "C (3,) does not broadcast to the result");
  ExpectError<E>([&] { Gemm(a, b, Tensor({1, 2, 4})); }, "C (1, 2, 4) does not broadcast");
  ExpectError<E>([&] { GemmBackward(y, a, b, {5}, 1, 1, false, false, false, false, true); },
                 "[GemmBackward] C (5,)");
  ExpectError<E>([&] { LinearForward(Tensor({3}), b, Tensor()); }, "x must be (N, in)");
  ExpectError<E>([&] { LinearForward(a, Tensor({3}), Tensor()); }, "W must be (in, out)");
  ExpectError<E>([&] { LinearForward(a, b, Tensor(), true); },
                 "x (2, 3) has 3 features, W (3, 4) takes 4");
  ExpectError<E>([&] { LinearForward(a, b, Tensor({3})); }, "b must have shape (4,)");
  ExpectError<E>([&] { LinearBackward(a, a, b, false, true, true, true); },
                 "[LinearBackward] dy must have shape (2, 4)");
}

}  // namespace
}  // namespace singa
