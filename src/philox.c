/* Many doubles of one generator, in order. */
#include "philox.h"

void philox_uniforms(sumtree_philox *rng, int64_t count, double *uniforms) {
    uint64_t words[PHILOX_WORDS];
    if (rng->buffer_pos < PHILOX_WORDS) philox_block(rng->counter, rng->key, words);
    for (int64_t k = 0; k < count; ++k) {
        if (rng->buffer_pos >= PHILOX_WORDS) {
            philox_advance(rng->counter, 1);
            philox_block(rng->counter, rng->key, words);
            rng->buffer_pos = 0;
        }
        uniforms[k] = philox_as_double(words[rng->buffer_pos++]);
    }
}
