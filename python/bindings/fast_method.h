// Methods that try the common case before any Python code runs: plain arrays and numbers of exactly Python's own types.
//
// A fast method stands in for a Python method that does the same for everything that it may be given. What is not the
// common case, and every failure, is left to that method, from the start: an attempt that does not succeed has changed
// nothing and left no exception.
#ifndef SUMTREE_BINDINGS_FAST_METHOD_H
#define SUMTREE_BINDINGS_FAST_METHOD_H

#include <cstddef>
#include <map>
#include <new>
#include <string>

#include <structmember.h>

#include "exchange.h"
#include "tree.h"

namespace bindings {

struct FastMethod {
    PyObject_HEAD;
    vectorcallfunc vectorcall;
    PyObject *function; // the Python method; owned
    PyObject *result;   // the class of a sample, a subclass of tuple; owned
    PyObject *attributes;
    PyTypeObject *seen; // the last type of tree that it was called on; owned
    PyObject *(*attempt)(Tree &tree, const FastMethod *self, PyObject *const *arguments, Py_ssize_t count,
                         PyObject *keywords);
};

// ---- the common cases: a new reference, or NULL and no exception ---------------------------------------------------

// Indices: an array, or one Python int.
class FastIndices {
  public:
    bool take(PyObject *object) {
        if (!PyLong_CheckExact(object)) return is_array_ = array_.take_exact(object);
        int overflow = 0;
        number_ = PyLong_AsLongLongAndOverflow(object, &overflow);
        return overflow == 0;
    }
    bool is_array() const { return is_array_; }
    const Plain<int64_t> &array() const { return array_; }
    int64_t count() const { return is_array_ ? array_.size() : 1; }
    const int64_t *data() const { return is_array_ ? array_.data() : &number_; }

  private:
    Plain<int64_t> array_;
    int64_t number_ = 0;
    bool is_array_ = false;
};

inline PyObject *none_if(bool done) { return done ? Py_NewRef(Py_None) : nullptr; }

inline std::vector<size_t> shape_of(const nb::dlpack::dltensor &tensor) {
    return {tensor.shape, tensor.shape + tensor.ndim};
}

inline bool has_shape(const nb::dlpack::dltensor &tensor, int32_t axes, const int64_t *shape) {
    return tensor.ndim == axes && std::equal(shape, shape + axes, tensor.shape);
}

inline PyObject *attempt_device_update(Tree &tree, PyObject *indices, PyObject *masses) {
    const auto own = tree.dlpack_device();
    const auto where = borrow_array<int64_t>(indices, own);
    const auto what = where ? borrow_array<double>(masses, own) : std::nullopt;
    if (!what || !(what->ndim == 0 || has_shape(*what, where->ndim, where->shape))) return nullptr;
    return none_if(tree.try_device_update(Span(*where), Span(*what)).status == SUMTREE_OK);
}

inline PyObject *attempt_update(Tree &tree, const FastMethod *, PyObject *const *arguments, Py_ssize_t count,
                                PyObject *keywords) {
    FastIndices indices;
    if (count != 2 || keywords != nullptr) return nullptr;
    if (!indices.take(arguments[0])) {
        return tree.device() < 0 ? nullptr : attempt_device_update(tree, arguments[0], arguments[1]);
    }
    if (PyFloat_CheckExact(arguments[1])) {
        const double mass = PyFloat_AS_DOUBLE(arguments[1]);
        return none_if(tree.try_update(indices.count(), indices.data(), &mass, 0).status == SUMTREE_OK);
    }
    Plain<double> masses;
    if (!masses.take_exact(arguments[1])) return nullptr;
    const bool is_one = masses.axes() == 0;
    if (!is_one && !(indices.is_array() && masses.has_shape_of(indices.array()))) return nullptr;
    const auto outcome = tree.try_update(indices.count(), indices.data(), masses.data(), is_one ? 0 : 1);
    return none_if(outcome.status == SUMTREE_OK);
}

inline PyObject *attempt_device_get(Tree &tree, PyObject *indices) {
    const auto where = borrow_array<int64_t>(indices, tree.dlpack_device());
    if (!where) return nullptr;
    const auto masses = tree.new_array(shape_of(*where), false);
    if (tree.try_device_get(Span(*where), Span(masses)).status != SUMTREE_OK) return nullptr;
    return hand_over(exchange_of(Py_TYPE(indices)), masses).release().ptr();
}

inline PyObject *attempt_get(Tree &tree, const FastMethod *, PyObject *const *arguments, Py_ssize_t count,
                             PyObject *keywords) {
    FastIndices indices;
    if (count != 1 || keywords != nullptr) return nullptr;
    if (!indices.take(arguments[0])) return tree.device() < 0 ? nullptr : attempt_device_get(tree, arguments[0]);
    if (!indices.is_array()) {
        double mass = 0.0;
        return tree.try_get(1, indices.data(), &mass).status == SUMTREE_OK ? PyFloat_FromDouble(mass) : nullptr;
    }
    nb::object masses = nb::steal(new_plain<double>(indices.array().axes(), indices.array().shape()));
    if (!masses.is_valid()) return nullptr;
    const auto outcome = tree.try_get(indices.count(), indices.data(), Plain<double>(masses).data());
    return outcome.status == SUMTREE_OK ? masses.release().ptr() : nullptr;
}

// A sumtree_side, or -1 for anything but its name.
inline int side_of(PyObject *name) {
    if (!PyUnicode_CheckExact(name)) return -1;
    if (PyUnicode_CompareWithASCIIString(name, "right") == 0) return SUMTREE_SIDE_RIGHT;
    return PyUnicode_CompareWithASCIIString(name, "left") == 0 ? SUMTREE_SIDE_LEFT : -1;
}

inline PyObject *attempt_device_find(Tree &tree, PyObject *targets, int side) {
    const auto what = borrow_array<double>(targets, tree.dlpack_device());
    if (!what) return nullptr;
    const auto indices = tree.new_array(shape_of(*what), true);
    if (tree.try_device_find(Span(*what), side, Span(indices)).status != SUMTREE_OK) return nullptr;
    return hand_over(exchange_of(Py_TYPE(targets)), indices).release().ptr();
}

inline PyObject *attempt_find(Tree &tree, const FastMethod *, PyObject *const *arguments, Py_ssize_t count,
                              PyObject *keywords) {
    if (count < 1 || count > 2 || keywords != nullptr) return nullptr;
    const int side = count == 1 ? static_cast<int>(SUMTREE_SIDE_RIGHT) : side_of(arguments[1]);
    if (side < 0) return nullptr;
    if (PyFloat_CheckExact(arguments[0])) {
        const double target = PyFloat_AS_DOUBLE(arguments[0]);
        int64_t index = 0;
        return tree.try_find(1, &target, side, &index).status == SUMTREE_OK ? PyLong_FromLongLong(index) : nullptr;
    }
    Plain<double> targets;
    if (!targets.take_exact(arguments[0])) {
        return tree.device() < 0 ? nullptr : attempt_device_find(tree, arguments[0], side);
    }
    nb::object indices = nb::steal(new_plain<int64_t>(targets.axes(), targets.shape()));
    if (!indices.is_valid()) return nullptr;
    const auto outcome = tree.try_find(targets.size(), targets.data(), side, Plain<int64_t>(indices).data());
    return outcome.status == SUMTREE_OK ? indices.release().ptr() : nullptr;
}

// The arguments of a draw.
struct Draw {
    int64_t count = 0;
    double beta = 0.4;
    bool stratified = true;
    PyObject *out = Py_None;
    PyObject *xp = Py_None;

    // False for what is not of exactly these types, or not an argument at all.
    bool take(PyObject *const *arguments, Py_ssize_t positional, PyObject *keywords) {
        static constexpr const char *NAMES[] = {"n", "beta", "stratified", "out", "xp"};
        if (positional > 3) return false;
        PyObject *given[5] = {};
        std::copy(arguments, arguments + positional, given);
        for (Py_ssize_t k = 0; keywords != nullptr && k < PyTuple_GET_SIZE(keywords); ++k) {
            Py_ssize_t place = positional;
            while (place < 5 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, k), NAMES[place]) != 0) {
                ++place;
            }
            if (place == 5) return false;
            given[place] = arguments[positional + k];
        }
        out = given[3] != nullptr ? given[3] : Py_None;
        xp = given[4] != nullptr ? given[4] : Py_None;
        return take_numbers(given);
    }

  private:
    bool take_numbers(PyObject *const *given) {
        if (given[0] == nullptr || !PyLong_CheckExact(given[0])) return false;
        if (given[1] != nullptr && !PyFloat_CheckExact(given[1])) return false;
        if (given[2] != nullptr && !PyBool_Check(given[2])) return false;
        int overflow = 0;
        count = PyLong_AsLongLongAndOverflow(given[0], &overflow);
        if (given[1] != nullptr) beta = PyFloat_AS_DOUBLE(given[1]);
        if (given[2] != nullptr) stratified = given[2] == Py_True;
        return overflow == 0 && count >= 0;
    }
};

inline PyObject *new_sample(const FastMethod *self, nb::handle indices, nb::handle masses, nb::handle weights) {
    const nb::tuple drawn = nb::make_tuple(nb::make_tuple(indices, masses, weights));
    return PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject *>(self->result), drawn.ptr(), nullptr);
}

inline PyObject *attempt_host_sample(Tree &tree, const FastMethod *self, const Draw &draw) {
    const npy_intp count = draw.count;
    const auto indices = nb::steal(new_plain<int64_t>(1, &count));
    const auto masses = nb::steal(new_plain<double>(1, &count));
    const auto weights = nb::steal(new_plain<double>(1, &count));
    if (!indices.is_valid() || !masses.is_valid() || !weights.is_valid()) return nullptr;
    const auto outcome = tree.try_sample(count, draw.beta, draw.stratified, Plain<int64_t>(indices).data(),
                                         Plain<double>(masses).data(), Plain<double>(weights).data());
    return outcome.status == SUMTREE_OK ? new_sample(self, indices, masses, weights) : nullptr;
}

// Results for a library whose arrays are of its type Tensor, as PyTorch's are.
inline PyObject *attempt_device_sample(Tree &tree, const FastMethod *self, const Draw &draw) {
    const nb::object type = nb::getattr(draw.xp, "Tensor", nb::none());
    if (tree.device() < 0 || !PyType_Check(type.ptr())) return nullptr;
    const auto *functions = ready_exchange_of(reinterpret_cast<PyTypeObject *>(type.ptr()), tree.dlpack_device());
    if (functions == nullptr) return nullptr;
    const std::vector<size_t> shape = {static_cast<size_t>(draw.count)};
    const auto indices = tree.new_array(shape, true), masses = tree.new_array(shape, false),
               weights = tree.new_array(shape, false);
    const auto outcome = tree.try_device_sample(draw.beta, draw.stratified, Span(indices), Span(masses), Span(weights));
    if (outcome.status != SUMTREE_OK) return nullptr;
    return new_sample(self, hand_over(functions, indices), hand_over(functions, masses), hand_over(functions, weights));
}

inline PyObject *attempt_sample_into(Tree &tree, const FastMethod *self, const Draw &draw) {
    if (tree.device() < 0 || Py_TYPE(draw.out) != reinterpret_cast<PyTypeObject *>(self->result)) return nullptr;
    const auto own = tree.dlpack_device();
    const auto indices = borrow_array<int64_t>(PyTuple_GET_ITEM(draw.out, 0), own);
    const auto masses = indices ? borrow_array<double>(PyTuple_GET_ITEM(draw.out, 1), own) : std::nullopt;
    const auto weights = masses ? borrow_array<double>(PyTuple_GET_ITEM(draw.out, 2), own) : std::nullopt;
    if (!weights) return nullptr;
    const Span where(*indices), what(*masses), how(*weights);
    if (overlap(where, what) || overlap(where, how) || overlap(what, how)) return nullptr;
    for (const auto *array : {&*indices, &*masses, &*weights}) {
        if (!has_shape(*array, 1, &draw.count)) return nullptr;
    }
    const auto outcome = tree.try_device_sample(draw.beta, draw.stratified, where, what, how);
    return outcome.status == SUMTREE_OK ? Py_NewRef(draw.out) : nullptr;
}

inline PyObject *attempt_sample(Tree &tree, const FastMethod *self, PyObject *const *arguments, Py_ssize_t count,
                                PyObject *keywords) {
    Draw draw;
    if (!draw.take(arguments, count, keywords)) return nullptr;
    if (draw.out != Py_None) return draw.xp == Py_None ? attempt_sample_into(tree, self, draw) : nullptr;
    return draw.xp == Py_None ? attempt_host_sample(tree, self, draw) : attempt_device_sample(tree, self, draw);
}

// ---- the type -------------------------------------------------------------------------------------------------------

inline PyTypeObject *tree_type = nullptr; // of Tree, and the base of that of leaves.py

// The same type comes again and again: to look at its bases each time would take a tenth of a short update.
inline bool is_tree(FastMethod *self, PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (type != self->seen) {
        if (!PyType_IsSubtype(type, tree_type)) return false;
        Py_INCREF(type);
        Py_XSETREF(self->seen, type);
    }
    return nb::inst_ready(object);
}

inline PyObject *call_fast_method(PyObject *object, PyObject *const *arguments, size_t flagged_count,
                                  PyObject *keywords) {
    auto *self = reinterpret_cast<FastMethod *>(object);
    const Py_ssize_t count = PyVectorcall_NARGS(flagged_count);
    if (count > 0 && is_tree(self, arguments[0])) {
        try {
            Tree &tree = *nb::inst_ptr<Tree>(arguments[0]);
            PyObject *result = self->attempt(tree, self, arguments + 1, count - 1, keywords);
            if (result != nullptr || PyErr_Occurred() != nullptr) return result;
        } catch (nb::python_error &error) {
            error.restore();
            return nullptr;
        } catch (const Failure &) {        // NOLINT(bugprone-empty-catch): the Python method meets it again
        } catch (const std::bad_alloc &) { // NOLINT(bugprone-empty-catch): the same
        }
    }
    return PyObject_Vectorcall(self->function, arguments, flagged_count, keywords);
}

inline PyObject *bind_fast_method(PyObject *self, PyObject *instance, PyObject *) {
    return instance == nullptr || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

inline int visit_fast_method(PyObject *object, visitproc visit, void *arg) {
    auto *self = reinterpret_cast<FastMethod *>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->function);
    Py_VISIT(self->result);
    Py_VISIT(self->attributes);
    Py_VISIT(self->seen);
    return 0;
}

inline int clear_fast_method(PyObject *object) {
    auto *self = reinterpret_cast<FastMethod *>(object);
    Py_CLEAR(self->function);
    Py_CLEAR(self->result);
    Py_CLEAR(self->attributes);
    Py_CLEAR(self->seen);
    return 0;
}

inline void free_fast_method(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    (void)clear_fast_method(object);
    type->tp_free(object);
    Py_DECREF(type);
}

inline PyTypeObject *make_fast_method_type() {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(FastMethod, vectorcall), READONLY, nullptr},
        {"__dictoffset__", T_PYSSIZET, offsetof(FastMethod, attributes), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr}};
    static PyGetSetDef accessors[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                                      {nullptr, nullptr, nullptr, nullptr, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_members, members},
                                  {Py_tp_getset, accessors},
                                  {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
                                  {Py_tp_descr_get, reinterpret_cast<void *>(bind_fast_method)},
                                  {Py_tp_traverse, reinterpret_cast<void *>(visit_fast_method)},
                                  {Py_tp_clear, reinterpret_cast<void *>(clear_fast_method)},
                                  {Py_tp_dealloc, reinterpret_cast<void *>(free_fast_method)},
                                  {0, nullptr}};
    static PyType_Spec spec = {"libsumtree._core.FastMethod", sizeof(FastMethod), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                   Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_IMMUTABLETYPE |
                                   Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               slots};
    return reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
}

// `result` is what an attempt at "sample" returns: a subclass of tuple without fields of its own.
inline nb::object make_fast_method(const std::string &operation, nb::handle function, nb::handle result) {
    static PyTypeObject *type = make_fast_method_type();
    static const std::map<std::string, decltype(FastMethod::attempt)> ATTEMPTS = {
        {"update", attempt_update}, {"get", attempt_get}, {"find", attempt_find}, {"sample", attempt_sample}};
    auto *method = type == nullptr ? nullptr : PyObject_GC_New(FastMethod, type);
    if (method == nullptr) nb::raise_python_error();
    method->vectorcall = call_fast_method;
    method->function = Py_NewRef(function.ptr());
    method->result = Py_NewRef(result.ptr());
    method->attributes = nullptr;
    method->seen = nullptr;
    method->attempt = ATTEMPTS.at(operation);
    PyObject_GC_Track(method);
    return nb::steal(reinterpret_cast<PyObject *>(method));
}

} // namespace bindings

#endif
