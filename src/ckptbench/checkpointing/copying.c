/* The copy of a rank's state into the memory from which its file is written, with the checksums of the file's blocks, in one pass.

   The stores go past the caches: a usual store would first read the line that it replaces, and would drive out of the cache
   what training works on. The checksum is XXH3 with 128 bits (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md), of
   blocks whose length is a multiple of 1024 bytes, which leaves out the special cases of the specification.

   Any number of threads may call `work` with the same job: each takes the next block until none is left. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { STRIPE = 64, STRIPES = 16 }; /* bytes that are mixed in at once, and how many of them between two scrambles */

typedef struct {
    const uint8_t *const *sources; /* pieces that follow one another in the file; one may lie in its place there */
    const uint64_t *starts;        /* where each begins in the file; after the last, where it ends */
    uint64_t nbytes;               /* of the file: a multiple of 1024 */
    uint64_t block;                /* bytes with a checksum of their own: a multiple of 1024 */
    uint8_t *target;               /* aligned to 64 bytes */
    uint8_t *digests;              /* 16 bytes a block */
    uint64_t next;                 /* the first block that no thread has taken */
} Job;

static const uint64_t PRIME32_1 = 0x9E3779B1, PRIME64_1 = 0x9E3779B185EBCA87, PRIME64_2 = 0xC2B2AE3D27D4EB4F;

static const uint64_t START[8] = {0xC2B2AE3D, 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                                  0x85EBCA77C2B2AE63, 0x85EBCA77, 0x27D4EB2F165667C5, 0x9E3779B1};

static const uint8_t SECRET[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

enum { OF_SCRAMBLE = 128, OF_LAST_STRIPE = 121, OF_LOW = 11, OF_HIGH = 117 }; /* places in SECRET */

static uint64_t read64(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* Copy one stripe, and mix it in. It may be in its place already. */
static void stripe_plain(uint64_t *sums, uint8_t *to, const uint8_t *from, const uint8_t *secret) {
    memmove(to, from, STRIPE);
    for (int i = 0; i < 8; i++) {
        uint64_t data = read64(from + 8 * i), key = data ^ read64(secret + 8 * i);
        sums[i ^ 1] += data;
        sums[i] += (key & 0xFFFFFFFF) * (key >> 32);
    }
}

static void scramble_plain(uint64_t *sums) {
    for (int i = 0; i < 8; i++)
        sums[i] = (sums[i] ^ (sums[i] >> 47) ^ read64(SECRET + OF_SCRAMBLE + 8 * i)) * PRIME32_1;
}

/* Copy whole runs of STRIPES stripes, a scramble after each. */
static void runs_plain(uint64_t *sums, uint8_t *to, const uint8_t *from, uint64_t runs) {
    for (; runs; runs--) {
        for (int i = 0; i < STRIPES; i++, to += STRIPE, from += STRIPE)
            stripe_plain(sums, to, from, SECRET + 8 * i);
        scramble_plain(sums);
    }
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2")))
#define LOAD(bytes) _mm256_loadu_si256((const __m256i *)(bytes))

AVX2 static __m256i mixed(__m256i sums, __m256i data, __m256i secret) {
    __m256i key = _mm256_xor_si256(data, secret);
    __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
    return _mm256_add_epi64(product, _mm256_add_epi64(sums, _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2))));
}

AVX2 static __m256i scrambled(__m256i sums, __m256i secret) {
    __m256i prime = _mm256_set1_epi64x(PRIME32_1);
    __m256i key = _mm256_xor_si256(_mm256_xor_si256(sums, _mm256_srli_epi64(sums, 47)), secret);
    __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(key, 32), prime);
    return _mm256_add_epi64(_mm256_mul_epu32(key, prime), _mm256_slli_epi64(high, 32));
}

AVX2 static void runs_avx2(uint64_t *sums, uint8_t *to, const uint8_t *from, uint64_t runs) {
    __m256i low = LOAD(sums), high = LOAD(sums + 4);
    for (; runs; runs--) {
        for (int i = 0; i < STRIPES; i++, to += STRIPE, from += STRIPE) {
            __m256i first = LOAD(from), second = LOAD(from + 32);
            _mm256_stream_si256((__m256i *)to, first);
            _mm256_stream_si256((__m256i *)(to + 32), second);
            low = mixed(low, first, LOAD(SECRET + 8 * i));
            high = mixed(high, second, LOAD(SECRET + 8 * i + 32));
        }
        low = scrambled(low, LOAD(SECRET + OF_SCRAMBLE));
        high = scrambled(high, LOAD(SECRET + OF_SCRAMBLE + 32));
    }
    _mm256_storeu_si256((__m256i *)sums, low);
    _mm256_storeu_si256((__m256i *)(sums + 4), high);
    _mm_sfence();
}
#endif

/* With wider registers the memory would be no faster. */
static void copy_runs(uint64_t *sums, uint8_t *to, const uint8_t *from, uint64_t runs) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        runs_avx2(sums, to, from, runs);
        return;
    }
#endif
    runs_plain(sums, to, from, runs);
}

static uint64_t merged(const uint64_t *sums, const uint8_t *secret, uint64_t start) {
    for (int i = 0; i < 8; i += 2) {
        unsigned __int128 product = (unsigned __int128)(sums[i] ^ read64(secret + 8 * i)) * (sums[i + 1] ^ read64(secret + 8 * i + 8));
        start += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    start = (start ^ (start >> 37)) * 0x165667919E3779F9;
    return start ^ (start >> 32);
}

/* The canonical form: the high half first, each of them big-endian. */
static void put(uint8_t *digest, uint64_t high, uint64_t low) {
    for (int i = 0; i < 8; i++) {
        digest[i] = (uint8_t)(high >> (56 - 8 * i));
        digest[8 + i] = (uint8_t)(low >> (56 - 8 * i));
    }
}

/* Where reading stands: `at` in the file, which lies in piece `piece`. */
typedef struct {
    const Job *job;
    uint64_t at, piece;
} Cursor;

static Cursor cursor_at(const Job *job, uint64_t at) {
    uint64_t piece = 0;
    while (job->starts[piece + 1] <= at)
        piece++;
    return (Cursor){job, at, piece};
}

/* The next bytes, and how many of them lie one after the other: at least one. */
static const uint8_t *here(Cursor *cursor, uint64_t *length) {
    const Job *job = cursor->job;
    while (job->starts[cursor->piece + 1] <= cursor->at)
        cursor->piece++;
    *length = job->starts[cursor->piece + 1] - cursor->at;
    return job->sources[cursor->piece] + (cursor->at - job->starts[cursor->piece]);
}

static void gather(Cursor *cursor, uint8_t *into, uint64_t nbytes) {
    while (nbytes) {
        uint64_t length;
        const uint8_t *from = here(cursor, &length);
        if (length > nbytes)
            length = nbytes;
        memcpy(into, from, length);
        into += length, nbytes -= length, cursor->at += length;
    }
}

static void copy_block(Job *job, uint64_t first, uint64_t end, uint8_t *digest) {
    enum { RUN = STRIPE * STRIPES };
    uint64_t sums[8];
    uint8_t gathered[RUN];
    Cursor cursor = cursor_at(job, first);
    memcpy(sums, START, sizeof sums);
    while (cursor.at < end - RUN) { /* the last run is another one: see below */
        uint8_t *to = job->target + cursor.at;
        uint64_t length;
        const uint8_t *from = here(&cursor, &length);
        if (length > end - RUN - cursor.at)
            length = end - RUN - cursor.at;
        if (length >= RUN) {
            copy_runs(sums, to, from, length / RUN);
            cursor.at += length / RUN * RUN;
        } else {
            gather(&cursor, gathered, RUN);
            copy_runs(sums, to, gathered, 1);
        }
    }
    gather(&cursor, gathered, RUN);
    for (int i = 0; i < STRIPES; i++) {
        const uint8_t *secret = SECRET + (i == STRIPES - 1 ? OF_LAST_STRIPE : 8 * i);
        stripe_plain(sums, job->target + end - RUN + i * STRIPE, gathered + i * STRIPE, secret);
    }
    uint64_t length = end - first;
    put(digest, merged(sums, SECRET + OF_HIGH, ~(length * PRIME64_2)), merged(sums, SECRET + OF_LOW, length * PRIME64_1));
}

void work(Job *job) {
    uint64_t blocks = (job->nbytes + job->block - 1) / job->block, number;
    while ((number = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < blocks) {
        uint64_t first = number * job->block, end = first + job->block;
        copy_block(job, first, end < job->nbytes ? end : job->nbytes, job->digests + 16 * number);
    }
}
