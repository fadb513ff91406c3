/* Runs a fuzz target without libFuzzer, as a test: every seed, then a fixed number of inputs made
   from them by a generator that always begins the same. `make test` runs this for each target, with
   AddressSanitizer and UBSan; `make test-full` looks further with libFuzzer.

     build/address/tests/fuzz/NAME [-runs=N] CORPUS

   An input that fails is printed in hex, ready for `xxd -r -p`. */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEEDS_MAX 256
#define INPUT_MAX 4096 /* of a made one */
#define RUNS_DEFAULT 2000
#define CHANGES_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

struct input {
    uint8_t *p;
    size_t n;
};

static struct input seeds[SEEDS_MAX];
static size_t seed_count;
static struct input current;

static void tell(void)
{
    static const char digits[] = "0123456789abcdef";
    fprintf(stderr, "the input, %zu bytes: ", current.n);
    for (size_t i = 0; i < current.n; i++)
        fprintf(stderr, "%c%c", digits[current.p[i] >> 4], digits[current.p[i] & 15]);
    fprintf(stderr, "\n");
}

static void on_abort(int sig)
{
    signal(sig, SIG_DFL);
    tell();
    raise(sig);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static struct input read_seed(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (f == NULL || fstat(fileno(f), &st) < 0) {
        perror(path);
        exit(1);
    }
    struct input in = {malloc((size_t)st.st_size + 1), (size_t)st.st_size};
    if (in.p == NULL || fread(in.p, 1, in.n, f) != in.n) {
        perror(path);
        exit(1);
    }
    fclose(f);
    return in;
}

static void read_seeds(const char *folder)
{
    struct dirent **list;
    int n =
        scandir(folder, &list, NULL, by_name); /* the order of a folder is not always the same */
    if (n < 0) {
        perror(folder);
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && seed_count < SEEDS_MAX)
            seeds[seed_count++] = read_seed(path);
        free(list[i]);
    }
    free(list);
}

/* SplitMix64 */
static uint64_t draw(void)
{
    static uint64_t state = 0x70692d6d616e;
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static size_t below(size_t n)
{
    return n ? (size_t)(draw() % n) : 0;
}

static void insert(struct input *in, size_t at, const uint8_t *p, size_t n)
{
    if (n > INPUT_MAX - in->n)
        n = INPUT_MAX - in->n;
    memmove(in->p + at + n, in->p + at, in->n - at);
    memcpy(in->p + at, p, n);
    in->n += n;
}

static void take_out(struct input *in, size_t at, size_t n)
{
    memmove(in->p + at, in->p + at + n, in->n - at - n);
    in->n -= n;
}

/* Bytes that parsers care for. */
static const char spice[] =
    "\0\x01\x7f\x80\xff\xc0\xed\n\r\t \"\\'{}[]()<>:;,./-+*%&=#@!?0123456789"
    "eEuUxX\xef\xbb\xbf\xe2\x80\xa8";

static void change(struct input *in)
{
    const struct input *other = &seeds[below(seed_count)];
    uint8_t bytes[64];
    size_t at = below(in->n + 1), n = below(sizeof bytes) + 1, from;
    switch (draw() % 7) {
    case 0: /* one bit */
        if (in->n)
            in->p[below(in->n)] ^= (uint8_t)(1u << draw() % 8);
        break;
    case 1:
        if (in->n)
            in->p[below(in->n)] = (uint8_t)spice[below(sizeof spice - 1)];
        break;
    case 2:
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)spice[below(sizeof spice - 1)];
        insert(in, at, bytes, n % 4 + 1);
        break;
    case 3: /* away with a piece */
        take_out(in, at, below(in->n - at + 1) % 64);
        break;
    case 4: /* a piece again */
        n = in->n - at < n ? in->n - at : n;
        memcpy(bytes, in->p + at, n);
        insert(in, below(in->n + 1), bytes, n);
        break;
    case 5: /* a piece of another one */
        from = below(other->n + 1);
        insert(in, at, other->p + from, below(other->n - from + 1));
        break;
    default: /* the rest of another one */
        from = below(other->n + 1);
        in->n = at;
        insert(in, at, other->p + from, other->n - from);
    }
}

/* In memory of just that size, so that a byte too far is noticed. */
static void run(const uint8_t *p, size_t n)
{
    current = (struct input){malloc(n ? n : 1), n};
    if (n)
        memcpy(current.p, p, n);
    LLVMFuzzerTestOneInput(current.p, n);
    free(current.p);
    current = (struct input){0};
}

static void run_changed(void)
{
    static uint8_t room[INPUT_MAX];
    struct input in = {.p = room};
    const struct input *seed = &seeds[below(seed_count)];
    in.n = seed->n < INPUT_MAX ? seed->n : INPUT_MAX;
    memcpy(room, seed->p, in.n);
    for (size_t times = below(CHANGES_MAX) + 1; times > 0; times--)
        change(&in);
    run(room, in.n);
}

int main(int argc, char **argv)
{
    long runs = RUNS_DEFAULT;
    const char *folder = NULL;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "-runs=", 6) == 0)
            runs = strtol(argv[i] + 6, NULL, 10);
        else
            folder = argv[i];
    }
    if (folder)
        read_seeds(folder);
    if (seed_count == 0) {
        fprintf(stderr, "usage: %s [-runs=N] CORPUS (a folder with at least one seed)\n", argv[0]);
        return 2;
    }
    signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(tell);
    run((const uint8_t *)"", 0);
    for (size_t i = 0; i < seed_count; i++)
        run(seeds[i].p, seeds[i].n);
    for (long i = 0; i < runs; i++)
        run_changed();
    printf("%zu seeds and %ld inputs made of them\n", seed_count, runs);
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].p);
    return 0;
}
