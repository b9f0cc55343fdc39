#pragma once

// The list of the fields of a Spec (op_type.h says what follows from it).

/// Declares the fields of a Spec that change the plan: SINGA_FIELDS(shape, dtype, x_layout);
#define SINGA_FIELDS(...)                     \
  template <class Self, class V>              \
  static void VisitFields(Self& self, V& v) { \
    SINGA_VISIT_EACH(__VA_ARGS__)             \
  }                                           \
  static_assert(true)

/// The same for a Spec that also has the fields of its base.
#define SINGA_MORE_FIELDS(Base, ...)          \
  template <class Self, class V>              \
  static void VisitFields(Self& self, V& v) { \
    Base::VisitFields(self, v);               \
    SINGA_VISIT_EACH(__VA_ARGS__)             \
  }                                           \
  static_assert(true)

// v("name", self.name) for each of up to 16 names: the number of names chooses the macro to begin
// with.
#define SINGA_CHOOSE(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, _15, _16, \
                     chosen, ...)                                                           \
  chosen
#define SINGA_VISIT_EACH(...)                                                                \
  SINGA_CHOOSE(__VA_ARGS__, SINGA_VISIT_16, SINGA_VISIT_15, SINGA_VISIT_14, SINGA_VISIT_13,  \
               SINGA_VISIT_12, SINGA_VISIT_11, SINGA_VISIT_10, SINGA_VISIT_9, SINGA_VISIT_8, \
               SINGA_VISIT_7, SINGA_VISIT_6, SINGA_VISIT_5, SINGA_VISIT_4, SINGA_VISIT_3,    \
               SINGA_VISIT_2, SINGA_VISIT_1)                                                 \
  (__VA_ARGS__)
#define SINGA_VISIT_1(name) v(#name, self.name);
#define SINGA_VISIT_2(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_1(__VA_ARGS__)
#define SINGA_VISIT_3(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_2(__VA_ARGS__)
#define SINGA_VISIT_4(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_3(__VA_ARGS__)
#define SINGA_VISIT_5(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_4(__VA_ARGS__)
#define SINGA_VISIT_6(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_5(__VA_ARGS__)
#define SINGA_VISIT_7(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_6(__VA_ARGS__)
#define SINGA_VISIT_8(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_7(__VA_ARGS__)
#define SINGA_VISIT_9(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_8(__VA_ARGS__)
#define SINGA_VISIT_10(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_9(__VA_ARGS__)
#define SINGA_VISIT_11(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_10(__VA_ARGS__)
#define SINGA_VISIT_12(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_11(__VA_ARGS__)
#define SINGA_VISIT_13(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_12(__VA_ARGS__)
#define SINGA_VISIT_14(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_13(__VA_ARGS__)
#define SINGA_VISIT_15(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_14(__VA_ARGS__)
#define SINGA_VISIT_16(name, ...) SINGA_VISIT_1(name) SINGA_VISIT_15(__VA_ARGS__)
