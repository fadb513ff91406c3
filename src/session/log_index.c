/* Places in logs, by path: arrays in the order of the file, in a list of logs of which the longest
   unused are forgotten. */
#include "session/log_index.h"

#include "base/fd.h"
#include "base/id.h"
#include "base/lock.h"
#include "base/mem.h"
#include "session/projection.h"

#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
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

static bool is_known(const char *path, enum log_order order)
{
    for (const struct indexed_log *l = logs; l; l = l->next)
        if (l->order == order && strcmp(l->path, path) == 0)
            return true;
    return false;
}

static struct mark *add_mark(struct indexed_log *l)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 16;
        l->marks = mem_realloc(l->marks, size_mul(l->cap, sizeof *l->marks));
    }
    l->marks[l->n] = (struct mark){0};
    return &l->marks[l->n++];
}

/* ---- beside the log ---- */

/* DIR/sess_….jsonl → DIR/sess_….places */
static void places_path(const char *path, struct buf *out)
{
    size_t n = strlen(path), end = sizeof ".jsonl" - 1;
    buf_add(out, path, n > end ? n - end : n);
    buf_add_str(out, STR(".places"));
    buf_add_char(out, 0);
}

static void session_of(const char *path, char out[ID_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(out, ID_MAX, "%.*s", (int)strcspn(name, "."), name);
}

static void keep_mark(const char *path, const struct mark *m)
{
    char tail[TAIL_MAX * 2 + 1];
    sodium_bin2hex(tail, sizeof tail, (const unsigned char *)m->tail, m->tail_n);
    AUTO_JSON j = json_pack("{s:I, s:I, s:s, s:o}", "offset", (json_int_t)m->offset, "number",
                            (json_int_t)m->number, "tail", tail, "projection",
                            projection_save(m->projection));
    AUTO_BUF line = {0};
    json_write(j, &line);
    buf_add_char(&line, '\n');
    AUTO_BUF file = {0};
    places_path(path, &file);
    AUTO_FD fd = open(file.p, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) /* only a help: who cannot write it goes without */
        (void)fd_write_full(fd, line.p, line.n);
}

static bool read_mark(const char *session, struct str line, int64_t after, struct mark *out)
{
    struct err_slot saved;
    json_t *parsed = NULL;
    err_save(&saved);
    if (json_read(line, &parsed)) {
        err_restore(&saved); /* a torn line is no error of the caller's */
        return false;
    }
    AUTO_JSON j = parsed;
    struct str tail = json_get_str(j, "tail");
    *out = (struct mark){.offset = json_get_int(j, "offset", 0),
                         .number = json_get_int(j, "number", 0)};
    if (out->offset <= after || tail.p == NULL ||
        sodium_hex2bin((unsigned char *)out->tail, TAIL_MAX, tail.p, tail.n, NULL, &out->tail_n,
                       NULL) != 0 ||
        out->tail_n == 0 || out->offset < (int64_t)out->tail_n)
        return false;
    out->projection = projection_restore(session, json_object_get(j, "projection"));
    out->seq = out->projection ? projection_seq(out->projection) : 0;
    return out->projection != NULL;
}

static void close_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

static void free_text(char **p)
{
    free(*p);
}

/* The marks that are kept, in the order of the log; a list of its own. */
static void read_marks(const char *path, struct indexed_log *out)
{
    AUTO_BUF name = {0};
    places_path(path, &name);
    char session[ID_MAX];
    session_of(path, session);
    __attribute__((cleanup(close_file))) FILE *f = fopen(name.p, "re");
    __attribute__((cleanup(free_text))) char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; f && (n = getline(&line, &cap, f)) > 0;) {
        struct mark m;
        int64_t after = out->n ? out->marks[out->n - 1].offset : 0;
        if (read_mark(session, (struct str){line, (size_t)n}, after, &m))
            *add_mark(out) = m;
    }
}

/* A log that is new to this process: takes over what is kept of it. */
static void learn(const char *path)
{
    pthread_mutex_lock(&index_lock);
    bool known = is_known(path, LOG_BY_SEQ);
    pthread_mutex_unlock(&index_lock);
    if (known)
        return;
    struct indexed_log found = {0};
    read_marks(path, &found);
    AUTO_LOCK(&index_lock);
    bool by_seq = !is_known(path, LOG_BY_SEQ), by_number = !is_known(path, LOG_BY_NUMBER);
    struct indexed_log *seqs = use_log(path, LOG_BY_SEQ);
    struct indexed_log *numbers = found.n && by_number ? use_log(path, LOG_BY_NUMBER) : NULL;
    for (size_t i = 0; i < found.n; i++) {
        struct mark *m = &found.marks[i];
        if (numbers) {
            struct mark *copy = add_mark(numbers);
            *copy = *m;
            copy->projection = NULL;
        }
        if (by_seq)
            *add_mark(seqs) = *m;
        else
            projection_free(m->projection);
    }
    mem_free(found.marks);
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
    if (l->n == 0)
        return false;
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

void log_index_remove(const char *path)
{
    AUTO_BUF file = {0};
    places_path(path, &file);
    (void)unlink(file.p); /* it need not be there */
    forget(path, LOG_BY_SEQ);
    forget(path, LOG_BY_NUMBER);
}

void log_index_find(const char *path, const char *session, enum log_order order, int64_t first,
                    int64_t back, struct log_place *out)
{
    struct mark chosen = {0}, last = {0};
    *out = (struct log_place){.next_note = interval};
    learn(path);
    if (look_up(path, order, first, back, &chosen, &last)) {
        AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || !still_there(fd, &last) || !still_there(fd, &chosen)) {
            log_index_remove(path);
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

static const struct mark *note(struct indexed_log *l, const struct log_place *place,
                               struct str line)
{
    struct mark *m = add_mark(l);
    m->offset = place->offset;
    m->number = place->number;
    m->tail_n = line.n < TAIL_MAX ? line.n : TAIL_MAX - 1;
    memcpy(m->tail, line.p + line.n - m->tail_n, m->tail_n);
    m->tail[m->tail_n++] = '\n';
    if (place->projection) {
        m->projection = projection_copy(place->projection);
        m->seq = projection_seq(place->projection);
    }
    return m;
}

/* Notes the place unless one lies near. True with a copy to be kept beside the log. */
static bool note_if_far(const char *path, enum log_order order, struct log_place *place,
                        struct str line, struct mark *out_kept)
{
    AUTO_LOCK(&index_lock);
    struct indexed_log *l = use_log(path, order);
    int64_t last = l->n ? l->marks[l->n - 1].offset : 0;
    bool far = place->offset >= last + interval; /* or another was here first */
    if (far) {
        *out_kept = *note(l, place, line);
        last = place->offset;
        if (order == LOG_BY_SEQ)
            out_kept->projection = projection_copy(out_kept->projection);
    }
    place->next_note = last + interval;
    return far && order == LOG_BY_SEQ;
}

void log_index_pass(const char *path, enum log_order order, struct log_place *place,
                    struct str line)
{
    place->offset += (int64_t)line.n + 1;
    place->number++;
    if (place->offset < place->next_note)
        return;
    learn(path);
    struct mark kept;
    if (!note_if_far(path, order, place, line, &kept))
        return;
    keep_mark(path, &kept); /* not under the lock: it waits for the disk */
    projection_free(kept.projection);
}

void log_index_set_interval(int64_t bytes)
{
    AUTO_LOCK(&index_lock);
    interval = bytes;
}

void log_index_forget_all(void)
{
    AUTO_LOCK(&index_lock);
    while (logs)
        forget_oldest();
}
