#pragma once

#include "backend/onednn/engine.h"
#include "model/operation/conv/spec.h"

namespace singa::onednn {

/// The geometry in oneDNN's terms. Its loops for one filter per channel are for two dimensions
/// only, so it gets signals as images of height 1, in the same memory.
struct ConvGeometry {
  DType dtype;
  bool flat;  ///< signals that are images for oneDNN
  Shape x, w, y, b;
  bool bias, grouped;
  dnnl::memory::dims strides, dilations, before, after;
  /// Descriptors of the filter with oneDNN's axes, ([group,] out / group, in / group, kernel): in
  /// any layout, and in our row-major order.
  dnnl::memory::desc any_filter, plain_filter;

  explicit ConvGeometry(const ConvSpec& spec)
      : ConvGeometry(spec, spec.geometry, IsFlat(spec.geometry)) {
    const Recorder& r = spec.geometry;
    x = r.input_shape();
    y = r.output_shape();
    b = {r.out_channels};
    const int64_t out = r.out_channels / r.group, in = r.in_channels / r.group;
    const int64_t kernel = r.taps();
    SetFilter(r, {r.group, out, in}, {out * in * kernel, in * kernel, kernel});
  }
  /// The Recorder describes the convolution from y to x, so the filter's first axis counts the
  /// channels of x.
  explicit ConvGeometry(const ConvTransposeSpec& spec) : ConvGeometry(spec, spec.geometry, false) {
    const Recorder& r = spec.geometry;
    x = r.output_shape();
    y = r.input_shape();
    b = {r.in_channels};
    const int64_t out = r.in_channels / r.group, in = r.out_channels / r.group;
    const int64_t kernel = r.taps();
    SetFilter(r, {r.group, out, in}, {in * out * kernel, kernel, out * kernel});
  }

  /// Descriptors of activations with oneDNN's axes, and arguments with ours.
  dnnl::memory::desc AnyImage(const Shape& shape) const {
    return AnyDesc(ImageShape(shape), dtype);
  }
  dnnl::memory::desc Image(const LayoutPtr& layout, const Shape& shape) const {
    const dnnl::memory::desc desc = ToDesc(layout, shape, dtype);
    return flat ? desc.reshape(Dims(ImageShape(shape))) : desc;
  }
  LayoutPtr LayoutOf(const dnnl::memory::desc& desc, const Shape& shape) const {
    return FromDesc(flat && desc.get_size() > 0 ? desc.reshape(Dims(shape)) : desc, shape, dtype);
  }
  Argument BindImage(int id, const dnnl::memory::desc& desc, const Shape& shape) const {
    return {id, desc, LayoutOf(desc, shape)};
  }

  dnnl::memory::desc Bias() const { return bias ? PlainDesc(b, dtype) : dnnl::memory::desc(); }
  Argument BindFilter(int id, const dnnl::memory::desc& desc) const {
    return Bind(id, desc, w, dtype, filter_letters(), &plain_filter);
  }
  /// Names of the filter's axes.
  const char* filter_letters() const {
    constexpr const char* kLetters[] = {"goiw", "goihw", "goidhw"};
    return kLetters[strides.size() - 1] + (grouped ? 0 : 1);
  }
  Argument BindBias(int id) const { return {id, PlainDesc(b, dtype), nullptr}; }

 private:
  ConvGeometry(const ConvSpec& spec, const Recorder& r, bool signals)
      : dtype(spec.dtype),
        flat(signals),
        w(r.weight_shape()),
        bias(r.bias),
        grouped(r.group > 1),
        strides(r.Along(&Recorder::Axis::stride)),
        dilations(r.Along(&Recorder::Axis::dilation)),
        before(r.Along(&Recorder::Axis::before)),
        after(r.Along(&Recorder::Axis::after)) {
    if (flat) {
      for (dnnl::memory::dims* each : {&strides, &dilations}) each->insert(each->begin(), 1);
      for (dnnl::memory::dims* each : {&before, &after}) each->insert(each->begin(), 0);
    }
    for (int64_t& dilation : dilations) --dilation;  // oneDNN counts the gaps
  }

  static bool IsFlat(const Recorder& r) {
    return r.spatial == 1 && r.group > 1 && r.group == r.in_channels && r.group == r.out_channels;
  }
  Shape ImageShape(Shape shape) const {
    if (flat) shape.insert(2, 1);
    return shape;
  }

  void SetFilter(const Recorder& r, dnnl::memory::dims dims, dnnl::memory::dims places) {
    dnnl::memory::dims kernel = r.Along(&Recorder::Axis::kernel);
    if (flat) kernel.insert(kernel.begin(), 1);
    int64_t place = r.taps();
    for (const int64_t length : kernel) {
      dims.push_back(length);
      places.push_back(place /= length);
    }
    if (!grouped) {
      dims.erase(dims.begin());
      places.erase(places.begin());
    }
    any_filter = dnnl::memory::desc(dims, DataTypeOf(dtype), dnnl::memory::format_tag::any);
    plain_filter = dnnl::memory::desc(dims, DataTypeOf(dtype), places);
  }
};

}  // namespace singa::onednn
