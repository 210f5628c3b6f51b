// DLPack's C functions (DLPack 1.3): arrays of libraries that have them come and go without a call into Python.
//
// PyTorch has them. A library that has none is asked through __dlpack__ and from_dlpack, which take longer than the GPU
// does: device_arrays.py does that, and whatever is unusual.
#ifndef SUMTREE_BINDINGS_EXCHANGE_H
#define SUMTREE_BINDINGS_EXCHANGE_H

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "devices.h"

namespace bindings {

struct DlpackVersion {
    uint32_t major;
    uint32_t minor;
};

struct DlpackManaged {
    DlpackVersion version;
    void *context;
    void (*deleter)(DlpackManaged *self);
    uint64_t flags;
    nb::dlpack::dltensor tensor;
};

struct DlpackExchange {
    DlpackVersion version;
    const DlpackExchange *older;
    void *allocate;
    int (*owning_of)(void *object, DlpackManaged **tensor);
    int (*to_object)(DlpackManaged *tensor, void **object); // takes the tensor
    int (*borrowed_of)(void *object, nb::dlpack::dltensor *tensor);
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
};

// The functions of a type of arrays; NULL if it has none, or of another version. With the GIL.
inline const DlpackExchange *exchange_of(PyTypeObject *type) {
    static std::map<PyTypeObject *, const DlpackExchange *> known;
    const auto found = known.find(type);
    if (found != known.end()) return found->second;
    const DlpackExchange *functions = nullptr;
    const nb::object capsule =
        nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject *>(type), "__dlpack_c_exchange_api__"));
    if (capsule.is_valid() && PyCapsule_CheckExact(capsule.ptr())) {
        functions = static_cast<const DlpackExchange *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    }
    PyErr_Clear();
    while (functions != nullptr && functions->version.major != 1) functions = functions->older;
    if (functions != nullptr && functions->borrowed_of == nullptr) functions = nullptr;
    Py_INCREF(type); // a key of the map: the address is its own for ever
    known[type] = functions;
    return functions;
}

// The same if the library works on the default stream now, else NULL; no exception.
inline const DlpackExchange *ready_exchange_of(PyTypeObject *type, std::pair<int, int> device) {
    const DlpackExchange *functions = exchange_of(type);
    void *stream = nullptr;
    if (functions == nullptr) return nullptr;
    if (functions->current_stream(device.first, device.second, &stream) != 0) {
        PyErr_Clear();
        return nullptr;
    }
    return is_default_stream(stream) ? functions : nullptr;
}

// An array of the caller's that is all that a device call takes: the dtype, contiguous, on the device, and made by the
// default stream. Nothing for any other, and no exception.
template <typename Element>
std::optional<nb::dlpack::dltensor> borrow_array(PyObject *object, std::pair<int, int> device) {
    const DlpackExchange *functions = ready_exchange_of(Py_TYPE(object), device);
    nb::dlpack::dltensor tensor;
    if (functions == nullptr) return std::nullopt;
    if (functions->borrowed_of(object, &tensor) != 0) {
        PyErr_Clear();
        return std::nullopt;
    }
    if (tensor.dtype != nb::dtype<Element>() || tensor.device.device_type != device.first) return std::nullopt;
    if (tensor.device.device_id != device.second || !is_contiguous(tensor)) return std::nullopt;
    tensor.data = static_cast<char *>(tensor.data) + tensor.byte_offset;
    return tensor;
}

// A result, as its library takes it: owns its memory and the numbers that describe it.
class Parcel {
  public:
    explicit Parcel(const DeviceArray &array) : block_(array.block()) {
        for (const size_t axis : array.shape()) shape_.push_back(static_cast<int64_t>(axis));
        strides_.resize(shape_.size());
        int64_t stride = 1;
        for (size_t axis = shape_.size(); axis-- > 0;) {
            strides_[axis] = stride;
            stride *= shape_[axis];
        }
        const auto [device_type, device] = array.dlpack_device();
        auto &tensor = managed_.tensor;
        tensor.data = array.data();
        tensor.device = {device_type, device};
        tensor.ndim = static_cast<int32_t>(shape_.size());
        tensor.dtype = array.dlpack_dtype();
        tensor.shape = shape_.data();
        tensor.strides = strides_.data();
        managed_.version = {1, 0};
        managed_.context = this;
        managed_.deleter = [](DlpackManaged *self) { delete static_cast<Parcel *>(self->context); };
    }
    Parcel(const Parcel &) = delete;
    Parcel &operator=(const Parcel &) = delete;

    // Gives a parcel away.
    static DlpackManaged *sent(const DeviceArray &array) { return &(new Parcel(array))->managed_; }

  private:
    DlpackManaged managed_{};
    std::shared_ptr<Block> block_;
    std::vector<int64_t> shape_;
    std::vector<int64_t> strides_;
};

// An array of the library that the functions are of, around a result.
inline nb::object hand_over(const DlpackExchange *functions, const DeviceArray &array) {
    void *object = nullptr;
    if (functions->to_object(Parcel::sent(array), &object) != 0) nb::raise_python_error();
    return nb::steal(static_cast<PyObject *>(object));
}

} // namespace bindings

#endif
