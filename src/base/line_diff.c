#include "base/line_diff.h"

#include "base/mem.h"

#define CONTEXT 3
#define EDITS_MAX 1024                /* more lines changed: no shortest way is looked for */
#define STEPS_MAX (UINT64_C(1) << 25) /* comparisons of lines; some 50 ms */

struct line {
    struct str text; /* with its LF, if it has one */
    uint32_t id;     /* equal lines have equal ids */
};

struct text {
    struct line *lines;
    bool *changed; /* not in the other text */
    size_t n;
};

struct diff {
    struct text a, b;
    size_t from;         /* equal lines at the beginning */
    size_t a_end, b_end; /* before the equal lines at the end */
    int32_t *trace;      /* of each number of edits, how far each diagonal came */
    uint64_t steps;
};

/* ---- lines ---- */

static size_t count_lines(struct str s)
{
    size_t n = 0;
    for (const char *p = s.p, *end = s.p + s.n; p < end; n++) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        p = lf ? lf + 1 : end;
    }
    return n;
}

static struct text split(struct str s)
{
    struct text t = {.n = count_lines(s)};
    t.lines = mem_alloc(size_mul(t.n + 1, sizeof *t.lines));
    t.changed = mem_alloc(t.n + 1);
    const char *p = s.p, *end = s.p + s.n;
    for (size_t i = 0; i < t.n; i++) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((lf ? lf + 1 : end) - p);
        t.lines[i].text = (struct str){p, n};
        p += n;
    }
    return t;
}

static void text_done(struct text *t)
{
    mem_free(t->lines);
    mem_free(t->changed);
}

/* An open table of one line for each id. Its probes are bounded by giving equal ids only to equal
   lines, and a fresh one where too many others stand in the way. */
static void number_lines(struct text *t, const struct line **table, size_t mask, uint32_t *next)
{
    for (size_t i = 0; i < t->n; i++) {
        struct line *line = &t->lines[i];
        size_t at = str_hash(line->text) & mask;
        for (int probes = 0; table[at] && probes < 64; probes++, at = (at + 1) & mask)
            if (str_eq(table[at]->text, line->text))
                break;
        if (table[at] && str_eq(table[at]->text, line->text)) {
            line->id = table[at]->id;
            continue;
        }
        line->id = (*next)++;
        if (table[at] == NULL)
            table[at] = line;
    }
}

static void number_all(struct diff *d)
{
    size_t size = 16;
    while (size < 2 * (d->a.n + d->b.n))
        size *= 2;
    const struct line **table = mem_alloc(size_mul(size, sizeof *table));
    uint32_t next = 1;
    number_lines(&d->a, table, size - 1, &next);
    number_lines(&d->b, table, size - 1, &next);
    mem_free(table);
}

static void trim(struct diff *d)
{
    d->a_end = d->a.n;
    d->b_end = d->b.n;
    while (d->from < d->a_end && d->from < d->b_end &&
           d->a.lines[d->from].id == d->b.lines[d->from].id)
        d->from++;
    while (d->a_end > d->from && d->b_end > d->from &&
           d->a.lines[d->a_end - 1].id == d->b.lines[d->b_end - 1].id) {
        d->a_end--;
        d->b_end--;
    }
}

/* ---- the shortest way ---- */

/* Row `edits` of the trace: diagonals -edits … edits. */
static int32_t *row(const struct diff *d, int32_t edits)
{
    return d->trace + (size_t)edits * (size_t)edits + (size_t)edits;
}

/* How far diagonal k comes with so many edits, before the equal lines. */
static int32_t step(const struct diff *d, int32_t edits, int32_t k)
{
    if (edits == 0)
        return 0;
    const int32_t *before = row(d, edits - 1);
    bool down = k == -edits || (k != edits && before[k - 1] < before[k + 1]);
    return down ? before[k + 1] : before[k - 1] + 1;
}

/* One more edit. True when the end was reached. */
static bool advance(struct diff *d, int32_t edits)
{
    int32_t n = (int32_t)(d->a_end - d->from), m = (int32_t)(d->b_end - d->from);
    int32_t *reach = row(d, edits);
    for (int32_t k = -edits; k <= edits; k += 2) {
        int32_t x = step(d, edits, k);
        while (x < n && x - k < m && x >= 0 && x - k >= 0 &&
               d->a.lines[d->from + (size_t)x].id == d->b.lines[d->from + (size_t)(x - k)].id) {
            x++;
            d->steps++;
        }
        reach[k] = x;
        d->steps++;
        if (x >= n && x - k >= m)
            return true;
    }
    return false;
}

/* Walks the way back and marks what it changed. */
static void mark(struct diff *d, int32_t edits)
{
    int32_t k = (int32_t)(d->a_end - d->from) - (int32_t)(d->b_end - d->from);
    for (; edits > 0; edits--) {
        const int32_t *before = row(d, edits - 1);
        bool down = k == -edits || (k != edits && before[k - 1] < before[k + 1]);
        if (down) {
            k++;
            d->b.changed[d->from + (size_t)(before[k] - k)] = true;
        } else {
            k--;
            d->a.changed[d->from + (size_t)before[k]] = true;
        }
    }
}

static bool find_shortest(struct diff *d)
{
    size_t most = d->a_end - d->from + (d->b_end - d->from);
    most = most < EDITS_MAX ? most : EDITS_MAX;
    d->trace = mem_alloc((most + 1) * (most + 1) * sizeof *d->trace);
    bool found = false;
    for (int32_t edits = 0; (size_t)edits <= most && !found && d->steps < STEPS_MAX; edits++) {
        found = advance(d, edits);
        if (found)
            mark(d, edits);
    }
    mem_free(d->trace);
    return found;
}

static void mark_all(struct diff *d)
{
    memset(d->a.changed + d->from, true, d->a_end - d->from);
    memset(d->b.changed + d->from, true, d->b_end - d->from);
}

/* ---- hunks ---- */

static void add_line(struct buf *out, char mark_char, const struct line *line)
{
    buf_add_char(out, mark_char);
    buf_add_str(out, line->text);
    if (!str_ends(line->text, STR("\n")))
        buf_add_c(out, "\n\\ No newline at end of file\n");
}

/* "12,3"; a range of none is named by the line before it. */
static void add_range(struct buf *out, size_t from, size_t n)
{
    buf_printf(out, "%zu", n ? from + 1 : from);
    if (n != 1)
        buf_printf(out, ",%zu", n);
}

struct hunk {
    size_t a, b, a_end, b_end;
};

static void add_hunk(struct buf *out, const struct diff *d, const struct hunk *h)
{
    buf_add_c(out, "@@ -");
    add_range(out, h->a, h->a_end - h->a);
    buf_add_c(out, " +");
    add_range(out, h->b, h->b_end - h->b);
    buf_add_c(out, " @@\n");
    for (size_t i = h->a, j = h->b; i < h->a_end || j < h->b_end;) {
        if (i < h->a_end && d->a.changed[i]) {
            add_line(out, '-', &d->a.lines[i++]);
        } else if (j < h->b_end && d->b.changed[j]) {
            add_line(out, '+', &d->b.lines[j++]);
        } else {
            add_line(out, ' ', &d->a.lines[i++]);
            j++;
        }
    }
}

/* Moves over what is equal; false at the end of both. */
static bool next_change(const struct diff *d, size_t *i, size_t *j)
{
    while (*i < d->a.n && *j < d->b.n && !d->a.changed[*i] && !d->b.changed[*j]) {
        ++*i;
        ++*j;
    }
    return *i < d->a.n || *j < d->b.n;
}

static void pass_change(const struct diff *d, size_t *i, size_t *j)
{
    while (*i < d->a.n && d->a.changed[*i])
        ++*i;
    while (*j < d->b.n && d->b.changed[*j])
        ++*j;
}

static void add_hunks(struct buf *out, const struct diff *d)
{
    size_t i = 0, j = 0;
    bool more = next_change(d, &i, &j);
    while (more) {
        size_t lead = i < CONTEXT ? i : CONTEXT;
        lead = j < lead ? j : lead;
        struct hunk h = {.a = i - lead, .b = j - lead};
        size_t end_a, end_b;
        do { /* changes that are near belong together */
            pass_change(d, &i, &j);
            end_a = i;
            end_b = j;
            more = next_change(d, &i, &j);
        } while (more && i - end_a <= 2 * (size_t)CONTEXT);
        size_t left = d->a.n - end_a;
        size_t tail = left < CONTEXT ? left : CONTEXT;
        h.a_end = end_a + tail;
        h.b_end = end_b + tail;
        add_hunk(out, d, &h);
    }
}

void line_diff(struct str before, struct str after, struct buf *out)
{
    struct diff d = {.a = split(before), .b = split(after)};
    number_all(&d);
    trim(&d);
    if ((d.from < d.a_end || d.from < d.b_end) &&
        (d.from == d.a_end || d.from == d.b_end || !find_shortest(&d)))
        mark_all(&d);
    add_hunks(out, &d);
    text_done(&d.a);
    text_done(&d.b);
}
