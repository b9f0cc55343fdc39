#pragma once

// The list of the fields of a Spec (op_type.h says what follows from it).

/// Declares the fields of a Spec that change the plan: SINGA_FIELDS(shape, dtype, x_layout); A
/// field that declares fields of its own stands for these.
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

// v("name", self.name) for each of up to 26 names. The preprocessor expands no macro within itself,
// so each round of SINGA_EXPAND takes the next name. The way is David Mazières's:
// https://www.scs.stanford.edu/~dm/blog/va-opt.html
#define SINGA_VISIT_EACH(...) SINGA_EXPAND(SINGA_VISIT_FIRST(__VA_ARGS__))
#define SINGA_VISIT_FIRST(name, ...) \
  v(#name, self.name);               \
  __VA_OPT__(SINGA_VISIT_NEXT SINGA_NOTHING()()(__VA_ARGS__))
#define SINGA_VISIT_NEXT() SINGA_VISIT_FIRST
#define SINGA_NOTHING()
#define SINGA_EXPAND(...) SINGA_EXPAND_3(SINGA_EXPAND_3(SINGA_EXPAND_3(__VA_ARGS__)))
#define SINGA_EXPAND_3(...) SINGA_EXPAND_2(SINGA_EXPAND_2(SINGA_EXPAND_2(__VA_ARGS__)))
#define SINGA_EXPAND_2(...) SINGA_EXPAND_1(SINGA_EXPAND_1(SINGA_EXPAND_1(__VA_ARGS__)))
#define SINGA_EXPAND_1(...) __VA_ARGS__
