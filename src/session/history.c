/* Forward scans over the log, from a place near what is wanted (log_index.h). */
#include "session/history.h"

#include "base/id.h"
#include "base/mem.h"
#include "session/log.h"
#include "session/log_index.h"
#include "session/projection.h"

#include <stdio.h>
#include <sys/stat.h>

/* A scan keeps at most `limit` rows: the first ones after the position when ascending, else the
   last ones before it (a window that drops its oldest). */
struct window {
    const struct history_query *q;
    json_t *rows;
};

static bool wants(const struct window *w, int64_t position)
{
    if (!w->q->has_after)
        return true;
    return w->q->ascending ? position > w->q->after : position < w->q->after;
}

static void keep(struct window *w, json_t *take_row)
{
    if (w->q->ascending && json_array_size(w->rows) >= w->q->limit) {
        json_decref(take_row);
        return;
    }
    json_array_append_new(w->rows, take_row);
    if (!w->q->ascending && json_array_size(w->rows) > w->q->limit)
        json_array_remove(w->rows, 0);
}

static json_t *in_order(struct window *w)
{
    if (w->q->ascending)
        return w->rows;
    json_t *reversed = json_array();
    for (size_t i = json_array_size(w->rows); i > 0; i--)
        json_array_append(reversed, json_array_get(w->rows, i - 1));
    json_decref(w->rows);
    return reversed;
}

struct event_scan {
    struct window window;
    const char *path;
    struct log_place place;
    json_t *processed; /* eventId → {at, withdrawn?} */
    json_t *derived;   /* eventId → the id it is shown under, in what a fork copied */
    json_t *waiting;   /* once the page is complete: its events that may yet be processed */
    char last_id[ID_MAX];
};

/* No later event belongs on the page. */
static bool is_complete(const struct window *w, int64_t seq)
{
    if (w->q->ascending)
        return json_array_size(w->rows) >= w->q->limit;
    return w->q->has_after && seq + 1 >= w->q->after;
}

/* R21: a later line may say when an event was processed. (System messages are never queued.) */
static json_t *not_yet_processed(const struct event_scan *s)
{
    json_t *ids = json_object();
    size_t i;
    json_t *event;
    json_array_foreach(s->window.rows, i, event)
    {
        const char *id = json_get_c(event, "id");
        if (json_is_null(json_object_get(event, "processedAt")) &&
            json_object_get(s->processed, id) == NULL &&
            !str_is(json_get_str(event, "type"), "system.message"))
            json_object_set_new(ids, id, json_true());
    }
    return ids;
}

static void take_event(void *arg, int64_t seq, json_t *event)
{
    struct event_scan *s = arg;
    const char *type = s->window.q->type, *id = json_get_c(event, "id");
    snprintf(s->last_id, sizeof s->last_id, "%s", id);
    if (s->waiting == NULL && wants(&s->window, seq) &&
        (type == NULL || str_is(json_get_str(event, "type"), type)))
        keep(&s->window, json_incref(event));
}

static void note_processed(struct event_scan *s, const json_t *entry)
{
    if (!str_is(json_get_str(entry, "customType"), "pi-managed:processed"))
        return;
    json_t *data = json_object_get(entry, "data");
    const char *id = json_get_c(data, "eventId");
    if (id == NULL)
        return;
    const char *shown = json_get_c(s->derived, id);
    json_object_set(s->processed, shown ? shown : id, data);
    json_object_del(s->waiting, shown ? shown : id);
}

static void note_derived(struct event_scan *s, const json_t *entry)
{
    if (!str_is(json_get_str(entry, "customType"), "pi-managed:inbox"))
        return;
    const char *id = json_get_c(json_object_get(json_object_get(entry, "data"), "event"), "id");
    if (id && strcmp(id, s->last_id) != 0)
        json_object_set_new(s->derived, id, json_string(s->last_id));
}

static void feed_event_line(struct event_scan *s, struct str line)
{
    json_t *parsed = NULL;
    if (json_read_log(line, &parsed)) {
        projection_feed(s->place.projection, line, take_event, s); /* counts it */
        return;
    }
    AUTO_JSON entry = parsed;
    note_processed(s, entry);
    projection_feed_json(s->place.projection, entry, take_event, s);
    note_derived(s, entry);
}

static bool scan_event_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    struct event_scan *s = arg;
    feed_event_line(s, line);
    log_index_pass(s->path, LOG_BY_SEQ, &s->place, line);
    if (s->waiting == NULL && is_complete(&s->window, projection_seq(s->place.projection)))
        s->waiting = not_yet_processed(s);
    return s->waiting == NULL || json_object_size(s->waiting) > 0;
}

static void fill_processed(json_t *events, const json_t *processed)
{
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        const char *id = json_get_c(event, "id");
        const json_t *data = id ? json_object_get(processed, id) : NULL;
        if (data == NULL)
            continue;
        json_object_set(event, "processedAt", json_object_get(data, "at"));
        if (json_get_bool(data, "withdrawn", false))
            json_object_set_new(event, "withdrawn", json_true());
    }
}

/* Reads from a place `back` events before where the page ends. *out_from: lines skipped. */
static err scan_events(const char *logs_dir, const char *tenant, const char *session,
                       struct event_scan *s, int64_t back, int64_t *out_from)
{
    const struct history_query *q = s->window.q;
    int64_t first = LOG_END;
    if (q->has_after)
        first = q->ascending ? q->after + 1 : q->after - back;
    else if (q->ascending)
        first = 1;
    log_index_find(s->path, session, LOG_BY_SEQ, first, q->ascending ? 0 : back, &s->place);
    *out_from = s->place.number;
    s->window.rows = json_array();
    s->processed = json_object();
    s->derived = json_object();
    err e = log_read_from(logs_dir, tenant, session, s->place.offset, s->place.number,
                          scan_event_line, s);
    if (!e)
        fill_processed(s->window.rows, s->processed);
    log_place_done(&s->place);
    json_decref(s->processed);
    json_decref(s->derived);
    json_decref(s->waiting);
    s->waiting = NULL;
    if (e)
        json_decref(s->window.rows);
    return e;
}

err history_events(const char *logs_dir, const char *tenant, const char *session,
                   const struct history_query *q, json_t **out)
{
    AUTO_ARENA a = arena_new();
    struct event_scan s = {.window = {.q = q}, .path = log_path(logs_dir, tenant, session, a)};
    int64_t from = 0;
    /* With a type filter the page may lie further back than its length: look again from there. */
    for (int64_t back = q->limit;; back *= 8) {
        TRY(scan_events(logs_dir, tenant, session, &s, back, &from));
        if (q->ascending || from == 0 || json_array_size(s.window.rows) >= q->limit)
            break;
        json_decref(s.window.rows);
    }
    *out = in_order(&s.window);
    return 0;
}

/* Entries of a page, unread: of a long log all but the last few are never parsed. `lines` is a ring
   of `limit` slots, the oldest at `first`. */
struct entry_scan {
    const struct history_query *q;
    const char *path;
    struct log_place place;
    struct buf *lines;
    size_t n, first, bytes;
    int64_t last_position; /* of the newest in the ring */
    bool cut;
};
#define LINE_KEPT_MAX ((size_t)64 << 10) /* memory that a slot keeps for its next line */

static struct buf *entry_line(const struct entry_scan *s, size_t i)
{
    return &s->lines[(s->first + i) % s->q->limit];
}

static void drop_first(struct entry_scan *s)
{
    struct buf *line = entry_line(s, 0);
    s->bytes -= line->n;
    buf_clear(line);
    if (line->cap > LINE_KEPT_MAX)
        buf_done(line);
    s->first = (s->first + 1) % s->q->limit;
    s->n--;
}

static bool is_too_much(const struct entry_scan *s, size_t more)
{
    return s->q->bytes_max && s->n >= 2 && s->bytes + more > s->q->bytes_max;
}

static bool scan_entry_line(void *arg, int64_t number, struct str line)
{
    struct entry_scan *s = arg;
    const struct history_query *q = s->q;
    int64_t position = number + 1;
    log_index_pass(s->path, LOG_BY_NUMBER, &s->place, line);
    if (q->has_after && q->ascending && position <= q->after)
        return true;
    if (q->limit == 0 || (q->has_after && !q->ascending && position >= q->after))
        return false;
    if (q->ascending && (s->n == q->limit || is_too_much(s, line.n))) {
        s->cut = s->n < q->limit;
        return false;
    }
    if (s->n == q->limit)
        drop_first(s);
    for (; is_too_much(s, line.n); s->cut = true)
        drop_first(s);
    buf_add_str(entry_line(s, s->n++), line);
    s->bytes += line.n;
    s->last_position = position;
    return true;
}

static json_t *read_entry(const struct entry_scan *s, size_t i)
{
    struct str line = buf_str(entry_line(s, i));
    json_t *entry = NULL;
    if (json_read_log(line, &entry)) /* shown as it is, so that a damaged line can be found */
        entry = json_pack("{s:s, s:o}", "type", "unreadable", "raw", json_str(line));
    return json_pack("{s:I, s:o}", "position",
                     (json_int_t)(s->last_position - (int64_t)(s->n - 1 - i)), "entry", entry);
}

err history_entries(const char *logs_dir, const char *tenant, const char *session,
                    const struct history_query *q, json_t **out)
{
    AUTO_ARENA a = arena_new();
    struct entry_scan s = {.q = q, .path = log_path(logs_dir, tenant, session, a)};
    int64_t first = LOG_END;
    if (q->has_after)
        first = q->ascending ? q->after + 1 : q->after - (int64_t)q->limit;
    else if (q->ascending)
        first = 1;
    log_index_find(s.path, session, LOG_BY_NUMBER, first, q->ascending ? 0 : q->limit, &s.place);
    s.lines = mem_alloc((q->limit + 1u) * sizeof *s.lines);
    err e = log_read_from(logs_dir, tenant, session, s.place.offset, s.place.number,
                          scan_entry_line, &s);
    if (!e) {
        *out = json_array();
        for (size_t i = 0; i < s.n; i++)
            json_array_append_new(*out, read_entry(&s, q->ascending ? i : s.n - 1 - i));
        if (q->out_cut)
            *q->out_cut = s.cut;
    }
    for (size_t i = 0; i < q->limit; i++)
        buf_done(&s.lines[i]);
    mem_free(s.lines);
    log_place_done(&s.place);
    return e;
}

struct replay {
    const char *path;
    struct log_place place;
    int64_t after, last;
    history_event_fn fn;
    void *arg;
    bool stopped;
};

static void replay_event(void *arg, int64_t seq, json_t *event)
{
    struct replay *r = arg;
    if (seq <= r->after || r->stopped)
        return;
    if (r->fn(r->arg, seq, event))
        r->last = seq;
    else
        r->stopped = true;
}

static bool replay_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    struct replay *r = arg;
    projection_feed(r->place.projection, line, replay_event, r);
    log_index_pass(r->path, LOG_BY_SEQ, &r->place, line);
    return !r->stopped;
}

err history_replay(const char *logs_dir, const char *tenant, const char *session, int64_t after_seq,
                   history_event_fn fn, void *arg, int64_t *out_last_seq)
{
    AUTO_ARENA a = arena_new();
    struct replay r = {.path = log_path(logs_dir, tenant, session, a),
                       .after = after_seq,
                       .last = after_seq,
                       .fn = fn,
                       .arg = arg};
    int64_t first = after_seq < LOG_END ? after_seq + 1 : LOG_END;
    log_index_find(r.path, session, LOG_BY_SEQ, first, 0, &r.place);
    err e =
        log_read_from(logs_dir, tenant, session, r.place.offset, r.place.number, replay_line, &r);
    log_place_done(&r.place);
    if (!e)
        *out_last_seq = r.last;
    return e;
}

struct head {
    struct projection *projection;
    int64_t left;
};

static void ignore_event(void *arg, int64_t seq, json_t *event)
{
    (void)arg;
    (void)seq;
    (void)event;
}

static bool head_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    struct head *h = arg;
    h->left -= (int64_t)line.n + 1;
    if (h->left < 0)
        return false;
    projection_feed(h->projection, line, ignore_event, NULL);
    return true;
}

err history_head(const char *logs_dir, const char *tenant, const char *session, int64_t bytes,
                 int64_t *out_seq)
{
    struct head h = {.projection = projection_new(session), .left = bytes};
    err e = log_read(logs_dir, tenant, session, head_line, &h);
    if (!e)
        *out_seq = projection_seq(h.projection);
    projection_free(h.projection);
    return e;
}

int64_t history_bytes(const char *logs_dir, const char *tenant, const char *session)
{
    AUTO_ARENA a = arena_new();
    struct stat st;
    return stat(log_path(logs_dir, tenant, session, a), &st) == 0 ? st.st_size : 0;
}
