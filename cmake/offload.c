/* Does the compiler make code for a GPU? It links only if it does. */
#include <math.h>

static double numbers[64];
#pragma acc declare create(numbers)

int main(void) {
#pragma acc parallel loop gang vector num_gangs(2) vector_length(32)
    for (int i = 0; i < 64; ++i) numbers[i] = pow(numbers[i], 0.5);
    return 0;
}
