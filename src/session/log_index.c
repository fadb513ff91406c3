/* Places in logs, by path: arrays in the order of the file, in a list of logs of which the longest
   unused are forgotten. */
#include "session/log_index.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "session/projection.h"

#include <fcntl.h>
#include <unistd.h>

#define LOGS_MAX 256
#define TAIL_MAX                                                                                   \
    48 /* bytes before a place that must still be there: they hold a random line id                \
        */

struct mark {
    int64_t offset, number, seq;
    char tail[TAIL_MAX];
    size_t tail_n;
    struct projection *projection;
};

struct indexed_log {
    struct indexed_log *next; /* the last used first */
    char *path;
    enum log_order order;
    struct mark *marks;
    size_t n, cap;
};

static pthread_mutex_t index_lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct indexed_log *logs;
static size_t log_count;
static int64_t interval = 256 << 10;

static void free_log(struct indexed_log *l)
{
    for (size_t i = 0; i < l->n; i++)
        projection_free(l->marks[i].projection);
    mem_free(l->marks);
    mem_free(l->path);
    mem_free(l);
    log_count--;
}

/* Unlinks and returns it; NULL if unknown. */
static struct indexed_log *take_log(const char *path, enum log_order order)
{
    for (struct indexed_log **at = &logs; *at; at = &(*at)->next) {
        struct indexed_log *l = *at;
        if (l->order != order || strcmp(l->path, path) != 0)
            continue;
        *at = l->next;
        return l;
    }
    return NULL;
}

static void put_first(struct indexed_log *l)
{
    l->next = logs;
    logs = l;
}

static void forget_oldest(void)
{
    assert(logs != NULL);
    struct indexed_log **at = &logs;
    while ((*at)->next)
        at = &(*at)->next;
    struct indexed_log *oldest = *at;
    *at = NULL;
    free_log(oldest);
}

static struct indexed_log *use_log(const char *path, enum log_order order)
{
    struct indexed_log *l = take_log(path, order);
    if (l == NULL) {
        if (log_count >= LOGS_MAX)
            forget_oldest();
        l = mem_alloc(sizeof *l);
        l->path = mem_strdup(path);
        l->order = order;
        log_count++;
    }
    put_first(l);
    return l;
}

/* ---- finding ---- */

static int64_t value_of(const struct mark *m, enum log_order order)
{
    return order == LOG_BY_SEQ ? m->seq : m->number;
}

static const struct mark *choose(const struct indexed_log *l, int64_t first, int64_t back)
{
    int64_t most = value_of(&l->marks[l->n - 1], l->order) - back;
    most = most < first - 1 ? most : first - 1;
    for (size_t low = 0, high = l->n;;) { /* the last one with value <= most */
        if (low == high)
            return low > 0 ? &l->marks[low - 1] : NULL;
        size_t middle = low + (high - low) / 2;
        if (value_of(&l->marks[middle], l->order) <= most)
            low = middle + 1;
        else
            high = middle;
    }
}

/* Does the file still hold what stood before the mark? */
static bool still_there(int fd, const struct mark *m)
{
    char now[TAIL_MAX];
    ssize_t n = pread(fd, now, m->tail_n, m->offset - (off_t)m->tail_n);
    return n == (ssize_t)m->tail_n && memcmp(now, m->tail, m->tail_n) == 0;
}

/* Copies what the check below needs; false when nothing is known. *out_chosen may stay without a
   place. */
static bool look_up(const char *path, enum log_order order, int64_t first, int64_t back,
                    struct mark *out_chosen, struct mark *out_last)
{
    AUTO_LOCK(&index_lock);
    struct indexed_log *l = take_log(path, order);
    if (l == NULL)
        return false;
    put_first(l);
    const struct mark *chosen = choose(l, first, back);
    *out_last = l->marks[l->n - 1];
    out_last->projection = NULL;
    if (chosen) {
        *out_chosen = *chosen;
        out_chosen->projection = chosen->projection ? projection_copy(chosen->projection) : NULL;
    }
    return true;
}

static void forget(const char *path, enum log_order order)
{
    AUTO_LOCK(&index_lock);
    struct indexed_log *l = take_log(path, order);
    if (l)
        free_log(l);
}

void log_index_find(const char *path, const char *session, enum log_order order, int64_t first,
                    int64_t back, struct log_place *out)
{
    struct mark chosen = {0}, last = {0};
    *out = (struct log_place){.next_note = interval};
    if (look_up(path, order, first, back, &chosen, &last)) {
        AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || !still_there(fd, &last) || !still_there(fd, &chosen)) {
            forget(path, order);
            projection_free(chosen.projection);
            chosen = (struct mark){0};
        } else {
            out->next_note = last.offset + interval;
        }
        out->offset = chosen.offset;
        out->number = chosen.number;
        out->projection = chosen.projection;
    }
    if (out->projection == NULL && order == LOG_BY_SEQ)
        out->projection = projection_new(session);
}

void log_place_done(struct log_place *place)
{
    projection_free(place->projection);
    place->projection = NULL;
}

/* ---- noting ---- */

static void note(struct indexed_log *l, const struct log_place *place, struct str line)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->marks = mem_realloc(l->marks, size_mul(l->cap, sizeof *l->marks));
    }
    struct mark *m = &l->marks[l->n++];
    *m = (struct mark){.offset = place->offset, .number = place->number};
    m->tail_n = line.n < TAIL_MAX ? line.n : TAIL_MAX - 1;
    memcpy(m->tail, line.p + line.n - m->tail_n, m->tail_n);
    m->tail[m->tail_n++] = '\n';
    if (place->projection) {
        m->projection = projection_copy(place->projection);
        m->seq = projection_seq(place->projection);
    }
}

void log_index_pass(const char *path, enum log_order order, struct log_place *place,
                    struct str line)
{
    place->offset += (int64_t)line.n + 1;
    place->number++;
    if (place->offset < place->next_note)
        return;
    AUTO_LOCK(&index_lock);
    struct indexed_log *l = use_log(path, order);
    int64_t last = l->n ? l->marks[l->n - 1].offset : 0;
    if (l->n == 0 || place->offset >= last + interval) { /* or another reader was here first */
        note(l, place, line);
        last = place->offset;
    }
    place->next_note = last + interval;
}

void log_index_set_interval(int64_t bytes)
{
    AUTO_LOCK(&index_lock);
    interval = bytes;
}
