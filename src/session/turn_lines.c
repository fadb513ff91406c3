/* What a step leads to: lines for the log, and effects. */
#include "session/turn_state.h"

#include "base/clock.h"
#include "hands/frames.h"

void step_line(struct step *s, struct str line)
{
    struct turn_output *out = s->out;
    if ((out->line_count & (out->line_count - 1)) == 0) { /* room for the next power of two */
        struct str *more = arena_alloc(s->a, (out->line_count * 2 + 1) * sizeof *more);
        if (out->line_count)
            memcpy(more, out->lines, out->line_count * sizeof *more);
        out->lines = more;
    }
    out->lines[out->line_count++] = arena_str(s->a, line);
}

static void step_json_line(struct step *s, json_t *take_line)
{
    AUTO_BUF text = {0};
    json_write(take_line, &text);
    json_decref(take_line);
    step_line(s, buf_str(&text));
}

void step_header(struct step *s)
{
    struct turn *t = s->t;
    if (t->has_header)
        return;
    t->has_header = true;
    json_t *h = json_pack("{s:s, s:i, s:s}", "type", "session", "version", 3, "id", t->o.session);
    json_set_time(h, "timestamp", s->now_ms);
    json_object_set_new(h, "cwd", json_string(SANDBOX_WORKDIR));
    step_json_line(s, h);
}

const char *step_control(struct step *s, const char *custom_type, json_t *take_data)
{
    struct turn *t = s->t;
    step_header(s);
    const char *id =
        arena_printf(s->a, "%016llx", (unsigned long long)t->o.random(t->o.random_arg));
    json_t *line =
        json_pack("{s:s, s:s, s:s}", "type", "custom", "customType", custom_type, "id", id);
    json_object_set_new(line, "parentId", t->leaf[0] ? json_string(t->leaf) : json_null());
    json_set_time(line, "timestamp", s->now_ms);
    json_object_set_new(line, "data", take_data);
    step_json_line(s, line);
    return id;
}

const char *step_event(struct step *s, json_t *take_event)
{
    return step_control(s, "pi-managed:event", json_pack("{s:o}", "event", take_event));
}

struct turn_effect *step_effect(struct step *s, enum turn_effect_kind kind)
{
    struct turn_effect *e = arena_alloc(s->a, sizeof *e);
    e->kind = kind;
    *s->tail = e;
    s->tail = &e->next;
    return e;
}

void step_frame(struct step *s, const char *type, const char *delta_of, json_t *take_frame)
{
    json_object_set_new(take_frame, "type", json_string(type));
    json_object_set_new(take_frame, "sessionId", json_string(s->t->o.session));
    struct turn_effect *e = step_effect(s, EFFECT_FRAME);
    e->name = type;
    e->text = delta_of;
    e->bytes = json_write_arena(take_frame, s->a);
    json_decref(take_frame);
}

void step_error(struct step *s, const char *code, const char *message, const char *retry_type)
{
    step_event(s, json_pack("{s:s, s:{s:s, s:o}, s:{s:s}}", "type", "session.error", "error",
                            "code", code, "message", json_str(str_of(message)), "retryStatus",
                            "type", retry_type));
}

void step_status(struct step *s, const char *status, const json_t *stop_reason)
{
    struct turn_effect *e = step_effect(s, EFFECT_STATUS);
    e->name = status;
    if (stop_reason)
        e->bytes = json_write_arena(stop_reason, s->a);
}
