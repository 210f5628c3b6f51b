// libsumtree._core: backends opened at run time, their trees, and arrays in the memory of devices.
//
// Nothing here checks what the C library checks. A status other than OK leaves as _core.Failure(name, text, position),
// which failures.py turns into an exception with the offending value in its message.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/backend.h"
#include "bindings/devices.h"
#include "bindings/fast_method.h"
#include "bindings/threads.h"
#include "bindings/tree.h"

namespace nb = nanobind;

namespace {

using namespace bindings;

void masses_of(const Backend &backend, nb::handle priorities, double alpha, nb::handle masses) {
    const Plain<double> from(priorities), to(masses);
    int64_t position = -1;
    const int64_t count = from.size();
    const auto compute = [&] { return backend.masses(count, from.data(), alpha, to.data(), &position); };
    const auto status = count <= SHORT_BATCH ? compute() : (nb::gil_scoped_release(), compute());
    backend.check(status, position);
}

// Tells whether out is a plain array that may be written to.
template <typename Element> bool is_plain_and_writable(nb::handle object) {
    Plain<Element> array;
    return array.take(object.ptr()) && array.is_writable();
}

PyObject *failure_type = nullptr;

// The exceptions of failures that any call may end in, and that need no argument named.
std::map<std::string, nb::handle> &ready_errors() {
    static std::map<std::string, nb::handle> errors;
    return errors;
}

void raise_as(const std::string &name, nb::object error) { ready_errors()[name] = error.release(); }

void translate_failure(const std::exception_ptr &thrown, void *) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Failure &failure) {
        const auto ready = ready_errors().find(failure.name);
        if (ready != ready_errors().end()) {
            PyErr_SetString(ready->second.ptr(), failure.text);
            return;
        }
        const nb::tuple arguments = nb::make_tuple(failure.name, failure.text, failure.position);
        PyErr_SetObject(failure_type, arguments.ptr());
    }
}

void define_backend(nb::module_ &module) {
    nb::class_<Backend>(module, "Backend")
        .def(nb::init<const std::string &>(), nb::arg("path"))
        .def_prop_ro("abi_version", [](const Backend &self) { return self.abi_version(); })
        .def_prop_ro("name", [](const Backend &self) { return self.backend(); })
        .def_prop_ro("build", [](const Backend &self) { return self.build(); })
        .def_prop_ro("vector_level", [](const Backend &self) { return self.vector_level(); })
        .def_prop_ro("vector_levels", [](const Backend &self) { return self.vector_levels(); })
        .def("select_vector_level", &Backend::choose_vector_level)
        .def_prop_ro("device_count", &Backend::count_devices)
        .def_prop_ro("device_problem", &Backend::problem_of_devices)
        .def("device_name", &Backend::name_of_device)
        .def("device_memory_available", &Backend::memory_of_device)
        .def("memory_available", [](const Backend &self) { return self.memory_available(); })
        .def("bytes", [](const Backend &self, int64_t capacity,
                         int kind) { return self.bytes(capacity, static_cast<sumtree_kind>(kind)); })
        .def("masses", &masses_of)
        .def("status_table", &Backend::status_table);
}

void define_tree(nb::module_ &module) {
    auto tree = nb::class_<Tree>(module, "Tree");
    tree.def(nb::init<const Backend &, int64_t, int, int32_t>(), nb::arg("backend"), nb::arg("capacity"),
             nb::arg("kind"), nb::arg("device") = -1, nb::keep_alive<1, 2>())
        .def_prop_ro("_padded_capacity", &Tree::padded_capacity)
        .def_prop_ro("_device", &Tree::device)
        .def_prop_ro("_dlpack_device", &Tree::dlpack_device)
        .def_prop_ro("_is_closed", &Tree::is_closed)
        .def("_close", &Tree::close)
        .def("_update", &Tree::update)
        .def("_update_range", &Tree::update_range)
        .def("_append_packed", &Tree::append_packed)
        .def("_get", &Tree::get)
        .def("_get_range", &Tree::get_range)
        .def("_sum", &Tree::sum)
        .def("_min", &Tree::min)
        .def("_root", &Tree::root)
        .def("_find", &Tree::find)
        .def("_sample", &Tree::sample)
        .def("_sample_distinct", &Tree::sample_distinct)
        .def("_new_array", &Tree::new_array)
        .def("_device_update", &Tree::device_update)
        .def("_device_get", &Tree::device_get)
        .def("_device_find", &Tree::device_find)
        .def("_device_sample", &Tree::device_sample)
        .def_prop_rw("_rng", &Tree::rng, &Tree::set_rng)
        .def("_validate", &Tree::validate)
        .def("_nodes", &Tree::nodes);
    tree_type = reinterpret_cast<PyTypeObject *>(tree.ptr());
}

void define_device_arrays(nb::module_ &module) {
    nb::class_<DeviceArray>(module, "DeviceArray")
        .def_prop_ro("shape", [](const DeviceArray &self) { return nb::tuple(nb::cast(self.shape())); })
        .def_prop_ro("dtype", &DeviceArray::dtype)
        .def_prop_ro("address", [](const DeviceArray &self) { return reinterpret_cast<uintptr_t>(self.data()); })
        .def_prop_ro("__cuda_array_interface__", &DeviceArray::cuda_array_interface)
        .def("__dlpack_device__", &DeviceArray::dlpack_device)
        .def("__dlpack__", [](const DeviceArray &self, const nb::kwargs &wishes) { return self.dlpack(wishes); });

    nb::class_<DeviceView>(module, "DeviceView")
        .def(nb::init<nb::capsule>(), nb::arg("capsule"))
        .def_prop_ro("shape", [](const DeviceView &self) { return nb::tuple(nb::cast(self.shape())); })
        .def_prop_ro("dtype", &DeviceView::dtype)
        .def_prop_ro("address", [](const DeviceView &self) { return reinterpret_cast<uintptr_t>(self.data()); })
        .def_prop_ro("is_contiguous", &DeviceView::is_contiguous)
        .def_prop_ro("is_writable", &DeviceView::is_writable);
}

} // namespace

NB_MODULE(_core, module) {
    nb::set_leak_warnings(false); // a backend stays open until the process ends
    if (PyArray_ImportNumPyAPI() < 0) nb::raise_python_error();
    failure_type = PyErr_NewException("libsumtree._core.Failure", nullptr, nullptr);
    module.attr("Failure") = nb::handle(failure_type);
    nb::register_exception_translator(translate_failure);
    module.def("hold_for_fork", &hold_for_fork);
    module.def("release_after_fork", &release_after_fork);
    module.def("raise_as", &raise_as);
    module.def("fast_method", &make_fast_method);
    module.def(
        "is_plain_and_writable",
        [](nb::handle out, bool holds_indices) {
            return holds_indices ? is_plain_and_writable<int64_t>(out) : is_plain_and_writable<double>(out);
        },
        nb::arg("out").none(), nb::arg("holds_indices"));
    module.def("nothing", [](nb::handle, nb::handle) {}); // what a call with two arguments costs
    module.attr("ABI_VERSION") = SUMTREE_ABI_VERSION;
    module.attr("MAX_CAPACITY") = SUMTREE_MAX_CAPACITY;
    module.attr("MAX_MASS") = SUMTREE_MAX_MASS;
    define_backend(module);
    define_tree(module);
    define_device_arrays(module);
}
