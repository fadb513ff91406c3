#include "hands/collate.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <utf8proc.h>

enum step {
    IGNORED,   /* no weight at all */
    MARK,      /* an accent: second level only */
    PRIMARY,   /* another letter than the one before in the table */
    SECONDARY, /* the same letter, otherwise accented */
    TERTIARY,  /* the same, another form of it */
    SAME
};

static const struct run {
    uint32_t first;
    uint16_t n;
    uint8_t step;
} runs[] = {
#include "hands/collate_table.inc"
};
#define RUNS (sizeof runs / sizeof *runs)

/* Weights of the first character of each run; the others of a run follow from it. */
struct weights {
    uint16_t primary, secondary, tertiary;
};
static struct weights starts[RUNS];
static uint16_t by_code[RUNS];     /* indices of runs, sorted by first */
static uint16_t last_mark, stroke; /* second-level weights; stroke: of U+0338 */
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define COMMON 1             /* the weight of an unaccented letter, of a plain form */
#define UNLISTED 0x80000000u /* a first weight above it: by code point, behind all listed ones */
#define MULTI_MAX 32         /* code points that one can decompose to (18 in Unicode 15) */

static int compare_first(const void *a, const void *b)
{
    uint32_t x = runs[*(const uint16_t *)a].first, y = runs[*(const uint16_t *)b].first;
    return x < y ? -1 : x > y;
}

/* The run that holds a code point, or -1. */
static int find_run(uint32_t code)
{
    size_t low = 0, high = RUNS;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct run *r = &runs[by_code[middle]];
        if (code < r->first)
            high = middle;
        else if (code >= r->first + r->n)
            low = middle + 1;
        else
            return by_code[middle];
    }
    return -1;
}

static void prepare(void)
{
    struct weights at = {0, COMMON, COMMON};
    uint16_t mark = COMMON;
    for (uint16_t i = 0; i < RUNS; i++) {
        by_code[i] = i;
        uint16_t further = (uint16_t)(runs[i].n - 1);
        if (runs[i].step == MARK) {
            starts[i] = (struct weights){0, (uint16_t)(mark + 1), COMMON};
            mark = (uint16_t)(mark + runs[i].n);
            continue;
        }
        if (runs[i].step == PRIMARY)
            at = (struct weights){(uint16_t)(at.primary + 1), COMMON, COMMON};
        else if (runs[i].step == SECONDARY)
            at = (struct weights){at.primary, (uint16_t)(at.secondary + 1), COMMON};
        else if (runs[i].step == TERTIARY)
            at.tertiary++;
        starts[i] = at;
        if (runs[i].step == PRIMARY)
            at.primary = (uint16_t)(at.primary + further);
        else if (runs[i].step == SECONDARY)
            at.secondary = (uint16_t)(at.secondary + further);
        else if (runs[i].step == TERTIARY)
            at.tertiary = (uint16_t)(at.tertiary + further);
    }
    last_mark = mark;
    qsort(by_code, RUNS, sizeof *by_code, compare_first);
    int i = find_run(0x338);
    stroke = i < 0 ? mark : (uint16_t)(starts[i].secondary + 0x338 - runs[i].first);
}

/* The three levels of one name. Common weights at the end of the lower two say nothing and are
   left out. */
struct levels {
    struct buf *primary;
    struct buf secondary, tertiary;
    size_t secondary_used, tertiary_used;
};

static void add_16(struct buf *out, uint32_t weight)
{
    buf_add_char(out, (char)(weight >> 8 & 0xff));
    buf_add_char(out, (char)(weight & 0xff));
}

static void add_primary(struct levels *l, uint32_t weight)
{
    if (weight >= UNLISTED)
        add_16(l->primary, weight >> 16);
    add_16(l->primary, weight);
}

static void add_lower(struct levels *l, uint32_t secondary, uint32_t tertiary)
{
    add_16(&l->secondary, secondary);
    if (secondary != COMMON)
        l->secondary_used = l->secondary.n;
    add_16(&l->tertiary, tertiary);
    if (tertiary != COMMON)
        l->tertiary_used = l->tertiary.n;
}

/* `form` is added to the third level: what a compatibility character adds to the plain one. */
static void add_code(struct levels *l, uint32_t code, uint16_t form)
{
    int i = find_run(code);
    if (i < 0) {
        add_primary(l, UNLISTED + code);
        add_lower(l, COMMON, COMMON + form);
        return;
    }
    struct weights w = starts[i];
    uint16_t further = (uint16_t)(code - runs[i].first);
    switch ((enum step)runs[i].step) {
    case IGNORED:
        return;
    case MARK:
        add_lower(l, (uint32_t)w.secondary + further, w.tertiary + form);
        return;
    case PRIMARY:
        w.primary = (uint16_t)(w.primary + further);
        break;
    case SECONDARY: /* ø is an o with a stroke, and so on */
        add_primary(l, w.primary);
        add_lower(l, COMMON, w.tertiary + form);
        add_lower(l, stroke, (uint32_t)w.secondary + further);
        return;
    case TERTIARY:
        w.tertiary = (uint16_t)(w.tertiary + further);
        break;
    case SAME:
        break;
    }
    add_primary(l, w.primary);
    add_lower(l, w.secondary, w.tertiary + form);
}

/* æ, œ and ß stand between their two letters' spellings with and without accents. */
static bool add_expanded(struct levels *l, uint32_t code)
{
    const char *two = code == 0xe6 ? "ae" : code == 0x153 ? "oe" : code == 0xdf ? "ss" : NULL;
    if (two == NULL)
        return false;
    add_code(l, (uint32_t)two[0], 1);
    add_lower(l, (uint32_t)last_mark + 1, COMMON + 1);
    add_code(l, (uint32_t)two[1], 1);
    return true;
}

static void add_character(struct levels *l, uint32_t code)
{
    if (code < 0x80) {
        add_code(l, code >= 'A' && code <= 'Z' ? code + 32 : code, 0);
        return;
    }
    utf8proc_int32_t lower = utf8proc_tolower((utf8proc_int32_t)code);
    utf8proc_int32_t canonical[MULTI_MAX], full[MULTI_MAX];
    int last = 0;
    utf8proc_ssize_t n =
        utf8proc_decompose_char(lower, canonical, MULTI_MAX, UTF8PROC_DECOMPOSE, &last);
    last = 0;
    utf8proc_ssize_t m = utf8proc_decompose_char(lower, full, MULTI_MAX,
                                                 UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, &last);
    bool plain = n == m && n > 0 && memcmp(canonical, full, (size_t)n * sizeof *full) == 0;
    if (m <= 0 || m > MULTI_MAX) {
        add_code(l, (uint32_t)lower, 0);
        return;
    }
    for (utf8proc_ssize_t i = 0; i < m; i++) {
        /* A form without a small letter of its own may decompose to capitals (™): they count as
           small ones. */
        uint32_t one = (uint32_t)utf8proc_tolower(full[i]);
        if (!add_expanded(l, one))
            add_code(l, one, plain ? 0 : 1);
    }
}

void collate_key(struct str name, struct buf *out)
{
    pthread_once(&once, prepare);
    struct levels l = {.primary = out};
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)name.p;
    for (size_t at = 0; at < name.n;) {
        utf8proc_int32_t code;
        utf8proc_ssize_t used = utf8proc_iterate(p + at, (utf8proc_ssize_t)(name.n - at), &code);
        if (used <= 0) { /* callers pass UTF-8; anything else must still end */
            code = p[at];
            used = 1;
        }
        add_character(&l, (uint32_t)code);
        at += (size_t)used;
    }
    add_16(out, 0);
    buf_add(out, l.secondary.p, l.secondary_used);
    add_16(out, 0);
    buf_add(out, l.tertiary.p, l.tertiary_used);
    buf_done(&l.secondary);
    buf_done(&l.tertiary);
}

int collate_compare(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n ? memcmp(a.p, b.p, n) : 0;
    if (order != 0 || a.n == b.n)
        return order;
    return a.n < b.n ? -1 : 1;
}
