/*
 * The kernels of the device tests, in the subset that OpenCL C, CUDA C++ and HIP share; the names in
 * capitals come from a few lines that each of them puts before this text (src/compute/opencl.rs,
 * src/compute/hip.h). kernels.wgsl says the same for Vulkan.
 *
 * Every kernel writes its first buffer, reads the others, and takes four numbers; p0 is the number of
 * items. No kernel needs local memory or barriers, so any work-group size is right.
 */

/* out = a x + y, where a = p1 / 256 */
KERNEL saxpy(OUT(float) out, IN(float) x, IN(float) y, PARAMS) {
    ITEM(i);
    out[i] = (float)p1 / 256.0f * x[i] + y[i];
}

/* Item i adds up every p0-th of the p1 values, from the i-th on. */
KERNEL sum(OUT(float) out, IN(float) x, PARAMS) {
    ITEM(i);
    float total = 0.0f;
    for (uint at = i; at < p1; at += p0) total += x[at];
    out[i] = total;
}

/* out = a b for square matrices of p1 rows, a tile of 4 x 4 for each item */
KERNEL matmul(OUT(float) out, IN(float) a, IN(float) b, PARAMS) {
    ITEM(i);
    uint n_tiles = p1 / 4, row = i / n_tiles * 4, column = i % n_tiles * 4;
    float tile[4][4];
    for (uint r = 0; r < 4; r++)
        for (uint c = 0; c < 4; c++) tile[r][c] = 0.0f;
    for (uint k = 0; k < p1; k++) {
        float right[4];
        for (uint c = 0; c < 4; c++) right[c] = b[k * p1 + column + c];
        for (uint r = 0; r < 4; r++) {
            float left = a[(row + r) * p1 + k];
            for (uint c = 0; c < 4; c++) tile[r][c] += left * right[c];
        }
    }
    for (uint r = 0; r < 4; r++)
        for (uint c = 0; c < 4; c++) out[(row + r) * p1 + column + c] = tile[r][c];
}

/* A binomial filter of 3 x 3 over an image of p1 columns and p2 rows, 8 bits for each of 4 channels */
KERNEL blur(OUT(uint) out, IN(uint) image, PARAMS) {
    ITEM(i);
    int x = (int)(i % p1), y = (int)(i / p1);
    uint even = 0, odd = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int column = x + dx, row = y + dy;
            if (column < 0) column = 0;
            if (column >= (int)p1) column = (int)p1 - 1;
            if (row < 0) row = 0;
            if (row >= (int)p2) row = (int)p2 - 1;
            uint weight = (dx == 0 ? 2u : 1u) * (dy == 0 ? 2u : 1u);
            uint pixel = image[(uint)row * p1 + (uint)column];
            even += (pixel & 0x00ff00ffu) * weight;
            odd += ((pixel >> 8) & 0x00ff00ffu) * weight;
        }
    out[i] = ((even >> 4) & 0x00ff00ffu) | (((odd >> 4) & 0x00ff00ffu) << 8);
}

/* 8 chains of p1 multiplications and additions; the factors come from a buffer so that no compiler
   knows them */
KERNEL fma_chain(OUT(float) out, IN(float) x, IN(float) factors, PARAMS) {
    ITEM(i);
    float b = factors[0], c = factors[1], chain[8], total = 0.0f;
    for (uint j = 0; j < 8; j++) chain[j] = x[i] + (float)j;
    for (uint k = 0; k < p1; k++)
        for (uint j = 0; j < 8; j++) chain[j] = chain[j] * b + c;
    for (uint j = 0; j < 8; j++) total += chain[j];
    out[i] = total;
}

/* Copies 16 bytes for each item. */
KERNEL copy(OUT(uint4) out, IN(uint4) from, PARAMS) {
    ITEM(i);
    out[i] = from[i];
}

/* out[p1..] = from */
KERNEL place(OUT(float) out, IN(float) from, PARAMS) {
    ITEM(i);
    out[p1 + i] = from[i];
}

/* out = W x: rows of p1 weights of 8 bits, 4 in a word, with one scale for each 32 */
KERNEL matvec_q8(OUT(float) out, IN(uint) weights, IN(float) scales, IN(float) x, PARAMS) {
    ITEM(row);
    uint n_blocks = p1 / 32;
    float total = 0.0f;
    for (uint block = 0; block < n_blocks; block++) {
        float part = 0.0f;
        for (uint w = 0; w < 8; w++) {
            uint word = weights[(row * n_blocks + block) * 8 + w];
            uint at = block * 32 + w * 4;
            part += (float)((int)(word << 24) >> 24) * x[at];
            part += (float)((int)(word << 16) >> 24) * x[at + 1];
            part += (float)((int)(word << 8) >> 24) * x[at + 2];
            part += (float)((int)word >> 24) * x[at + 3];
        }
        total += part * scales[row * n_blocks + block];
    }
    out[row] = total;
}

/* Root-mean-square normalisation of p0 values */
KERNEL rms_norm(OUT(float) out, IN(float) x, PARAMS) {
    ITEM(i);
    float squares = 0.0f;
    for (uint at = 0; at < p0; at++) squares += x[at] * x[at];
    out[i] = x[i] / SQRT(squares / (float)p0 + 1e-5f);
}

/* Softmax attention of one query over p1 positions, heads of p2 values; item i is one value of out */
KERNEL attend(OUT(float) out, IN(float) query, IN(float) keys, IN(float) values, PARAMS) {
    ITEM(i);
    uint head = i / p2 * p2;
    float largest = -1e30f, weight_sum = 0.0f, total = 0.0f;
    for (uint turn = 0; turn < 2; turn++)
        for (uint position = 0; position < p1; position++) {
            float score = 0.0f;
            for (uint d = 0; d < p2; d++) score += query[head + d] * keys[position * p0 + head + d];
            score /= SQRT((float)p2);
            if (turn == 0) {
                if (score > largest) largest = score;
            } else {
                float weight = EXP(score - largest);
                weight_sum += weight;
                total += weight * values[position * p0 + i];
            }
        }
    out[i] = total / weight_sum;
}

/* out = silu(gate) up */
KERNEL swiglu(OUT(float) out, IN(float) gate, IN(float) up, PARAMS) {
    ITEM(i);
    out[i] = gate[i] / (1.0f + EXP(-gate[i])) * up[i];
}

/* out = a + b */
KERNEL add(OUT(float) out, IN(float) a, IN(float) b, PARAMS) {
    ITEM(i);
    out[i] = a[i] + b[i];
}
