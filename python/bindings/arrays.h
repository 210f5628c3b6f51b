// Plain arrays: NumPy arrays of native int64, float64 or bytes, C-contiguous and aligned, as arguments.py makes them.
//
// NumPy's own structures are read, not its buffer protocol: that alone takes as long as a short update.
#ifndef SUMTREE_BINDINGS_ARRAYS_H
#define SUMTREE_BINDINGS_ARRAYS_H

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>

namespace bindings {

template <typename Element> inline constexpr int NUMPY_TYPE = NPY_DOUBLE;
template <> inline constexpr int NUMPY_TYPE<int64_t> = NPY_INT64;
template <> inline constexpr int NUMPY_TYPE<uint8_t> = NPY_UINT8;

// A borrowed view of a plain array.
template <typename Element> class Plain {
  public:
    // False, and no view, for anything else.
    bool take(PyObject *object) {
        if (!PyArray_Check(object)) return false;
        array_ = reinterpret_cast<PyArrayObject *>(object);
        constexpr int LAYOUT = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
        return PyArray_TYPE(array_) == NUMPY_TYPE<Element> && (PyArray_FLAGS(array_) & LAYOUT) == LAYOUT &&
               PyArray_ISNOTSWAPPED(array_);
    }

    // The same, but for subclasses of NumPy's array, which may mean something else by it.
    bool take_exact(PyObject *object) { return PyArray_CheckExact(object) && take(object); }

    explicit Plain() = default;
    explicit Plain(nanobind::handle object) {
        if (!take(object.ptr())) throw nanobind::type_error("a plain array is needed");
    }

    Element *data() const { return static_cast<Element *>(PyArray_DATA(array_)); }
    int64_t size() const {
        int64_t size = 1;
        for (int axis = 0; axis < axes(); ++axis) size *= shape()[axis];
        return size;
    }
    int axes() const { return PyArray_NDIM(array_); }
    const npy_intp *shape() const { return PyArray_DIMS(array_); }
    bool is_writable() const { return PyArray_ISWRITEABLE(array_); }

    template <typename Other> bool has_shape_of(const Plain<Other> &other) const {
        if (axes() != other.axes()) return false;
        for (int axis = 0; axis < axes(); ++axis) {
            if (shape()[axis] != other.shape()[axis]) return false;
        }
        return true;
    }

  private:
    PyArrayObject *array_ = nullptr;
};

// A new array; NULL, and no exception, where there is no memory.
template <typename Element> PyObject *new_plain(int axes, const npy_intp *shape) {
    PyObject *array = PyArray_SimpleNew(axes, const_cast<npy_intp *>(shape), NUMPY_TYPE<Element>);
    if (array == nullptr) PyErr_Clear();
    return array;
}

} // namespace bindings

#endif
