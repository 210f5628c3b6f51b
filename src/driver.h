/* The CUDA driver, opened at run time: no link-time need, so that the gpu backend loads, and says what is missing, on
 * machines without one. With trees on the host, for tests, the same functions do the host's part.
 *
 * A bool is false when the driver refused; driver_error() then says why. Everything but driver_start, driver_pin and
 * driver_unpin acts on the device that the calling thread has entered. */
#ifndef SUMTREE_DRIVER_H
#define SUMTREE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opens the driver, or the host in its place. Once. */
bool driver_start(bool on_host);
const char *driver_error(void);

int32_t driver_device_count(void);
void driver_describe(int32_t device, char *text, size_t size);

/* Takes the primary context of a device, which other libraries of the process share. */
bool driver_retain(int32_t device, void **context);
bool driver_enter(void *context);
void driver_leave(void);

/* Device memory; 0 bytes are taken as 1. */
bool driver_take(uint64_t bytes, void **memory);
void driver_give_back(void *memory);
uint64_t driver_free_bytes(void);

/* Host memory that devices reach under the same address, zeroed. */
bool driver_pin(size_t bytes, void **memory);
void driver_unpin(void *memory);

/* In the order of a stream; host memory that was pinned must stay as it is until the stream has come by. */
bool driver_upload(void *stream, void *device, const void *host, size_t bytes);
bool driver_download(void *stream, void *host, const void *device, size_t bytes);
bool driver_fill(void *stream, void *device, unsigned char byte, size_t bytes);

bool driver_wait(void *stream);

#endif
