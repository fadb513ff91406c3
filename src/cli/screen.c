#include "cli/screen.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/text.h"

#define INDENT "    "
#define RESULT_LINES 12
#define WHAT_COLUMNS 160
#define TICKER_COLUMNS 50 /* with what stands before it less than 80: CLEAR_LINE clears one row */
#define OUTPUT_LINE_MAX ((size_t)64 << 10)
#define CLEAR_LINE "\r\033[K"

void screen_init(struct screen *s)
{
    *s = (struct screen){.is_terminal = isatty(STDOUT_FILENO), .began_ms = -1};
    s->shows_output = s->is_terminal && isatty(STDERR_FILENO);
}

static void end_output(struct screen *s)
{
    buf_done(&s->output.shown);
    buf_done(&s->output.line);
    s->output = (struct screen_output){0};
}

void screen_done(struct screen *s)
{
    buf_done(&s->grown);
    end_output(s);
}

/* ---- writing ---- */

static void close_answer(struct screen *s)
{
    if (s->open_id[0] == 0)
        return;
    printf("\n");
    fflush(stdout);
    s->open_id[0] = 0;
    buf_clear(&s->grown);
}

static void clear_ticker(struct screen *s)
{
    if (s->output.ticking)
        fputs(CLEAR_LINE, stderr);
    s->output.ticking = false;
}

/* A line on standard error, in its place after what stands on standard output. */
static void side_line(struct screen *s, enum paint paint, struct str text)
{
    AUTO_BUF safe = {0};
    clear_ticker(s);
    if (s->open_id[0])
        close_answer(s);
    fflush(stdout);
    text_add_safe(&safe, text);
    text_paint(stderr, paint, safe.n ? safe.p : "");
    fputc('\n', stderr);
}

void screen_note(struct screen *s, const char *text)
{
    AUTO_BUF line = {0};
    buf_printf(&line, "· %s", text);
    side_line(s, PAINT_DIM, buf_str(&line));
}

static void add_indented(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        buf_add_char(out, text.p[i]);
        if (text.p[i] == '\n')
            buf_add_c(out, INDENT);
    }
}

/* A pipe gets what the agent said, byte for byte; a terminal nothing that steers it. */
static void write_answer(const struct screen *s, struct str text)
{
    AUTO_BUF safe = {0};
    AUTO_BUF shown = {0};
    if (!s->is_terminal) {
        fwrite(text.p, 1, text.n, stdout);
        return;
    }
    text_add_safe(&safe, text);
    add_indented(&shown, buf_str(&safe));
    fwrite(buf_str(&shown).p, 1, shown.n, stdout);
    fflush(stdout);
}

static void begin_answer(struct screen *s)
{
    clear_ticker(s);
    if (s->is_terminal)
        text_paint(stdout, PAINT_CYAN, "Pi  ");
}

static void add_text(const json_t *event, struct buf *out)
{
    const json_t *content = json_object_get(event, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        struct str text = json_get_str(block, "text");
        if (text.p)
            buf_add_str(out, text);
        else
            buf_printf(out, "[%s]", json_get_c(block, "type"));
    }
}

/* ---- one kind of event each ---- */

static void show_start(struct screen *s, const json_t *event)
{
    const char *id = json_get_c(event, "eventId"), *type = json_get_c(event, "eventType");
    if (id && type && strcmp(type, "agent.message") == 0)
        snprintf(s->started_id, sizeof s->started_id, "%s", id);
}

/* A line that the tool wrote: the first ones stay, of the others the last is shown. */
static void show_output_line(struct screen *s, struct str line)
{
    struct screen_output *o = &s->output;
    AUTO_BUF shown = {0};
    buf_add_c(&shown, INDENT);
    if (o->lines < RESULT_LINES) {
        o->lines++;
        buf_add_str(&o->shown, line);
        buf_add_char(&o->shown, '\n');
        text_add_line(&shown, line, WHAT_COLUMNS);
        side_line(s, PAINT_DIM, buf_str(&shown));
        return;
    }
    buf_printf(&shown, "… %d more lines: ", ++o->hidden);
    text_add_line(&shown, line, TICKER_COLUMNS);
    fputs(CLEAR_LINE, stderr);
    text_paint(stderr, PAINT_DIM, shown.p);
    fflush(stderr);
    o->ticking = true;
}

/* Of several tools at once the first is watched. */
static void show_output(struct screen *s, const char *call, struct str text)
{
    struct screen_output *o = &s->output;
    if (!s->shows_output || s->open_id[0] || strlen(call) >= sizeof o->call ||
        (o->call[0] && strcmp(o->call, call) != 0))
        return;
    snprintf(o->call, sizeof o->call, "%s", call);
    for (const char *lf; text.n && (lf = memchr(text.p, '\n', text.n));) {
        struct str line = {text.p, (size_t)(lf - text.p)};
        text = (struct str){lf + 1, text.n - line.n - 1};
        buf_add_str(&o->line, line);
        show_output_line(s, buf_str(&o->line));
        buf_clear(&o->line);
    }
    if (o->line.n < OUTPUT_LINE_MAX)
        buf_add_str(&o->line, text);
}

static void show_delta(struct screen *s, const json_t *event)
{
    const char *id = json_get_c(event, "eventId"), *call = json_get_c(event, "toolCallId");
    struct str text = json_get_str(json_object_get(event, "delta"), "text");
    if (call && text.p) {
        show_output(s, call, text);
        return;
    }
    if (!s->is_terminal || id == NULL || text.p == NULL || strcmp(s->started_id, id) != 0)
        return;
    if (strcmp(s->open_id, id) != 0) {
        close_answer(s);
        snprintf(s->open_id, sizeof s->open_id, "%s", id);
        begin_answer(s);
    }
    buf_add_str(&s->grown, text);
    write_answer(s, text);
}

/* What was shown as it grew is the beginning of the whole, unless deltas were left out for us. */
static void show_message(struct screen *s, const json_t *event)
{
    AUTO_BUF text = {0};
    const char *id = json_get_c(event, "id");
    add_text(event, &text);
    struct str rest = buf_str(&text);
    bool grew = id && s->open_id[0] && strcmp(s->open_id, id) == 0;
    if (grew && str_starts(rest, buf_str(&s->grown))) {
        rest = (struct str){rest.p + s->grown.n, rest.n - s->grown.n};
    } else {
        close_answer(s);
        begin_answer(s);
    }
    write_answer(s, rest);
    snprintf(s->open_id, sizeof s->open_id, "%s", id ? id : "-");
    close_answer(s);
}

static void show_discarded(struct screen *s, const json_t *event)
{
    const char *id = json_get_c(event, "eventId");
    if (id && strcmp(s->open_id, id) == 0)
        screen_note(s, "that answer broke off; the model is asked again");
}

static void show_user(struct screen *s, const json_t *event)
{
    AUTO_BUF text = {0};
    AUTO_BUF shown = {0};
    const char *id = json_get_c(event, "id");
    if (id && s->own_message && strcmp(id, s->own_message) == 0)
        return;
    buf_add_c(&text, "You ");
    add_text(event, &text);
    add_indented(&shown, buf_str(&text));
    side_line(s, PAINT_BOLD, buf_str(&shown));
}

static void show_thinking(struct screen *s, const json_t *event)
{
    AUTO_BUF line = {0};
    buf_add_c(&line, INDENT "thought: ");
    text_add_line(&line, json_get_str(event, "text"), WHAT_COLUMNS);
    side_line(s, PAINT_DIM, buf_str(&line));
}

void screen_add_call(struct buf *out, const json_t *event, size_t columns)
{
    static const char *const telling[] = {"command", "path", "pattern"};
    const json_t *input = json_object_get(event, "input");
    AUTO_BUF json = {0};
    struct str what = {0};
    for (size_t i = 0; i < sizeof telling / sizeof *telling && what.p == NULL; i++)
        what = json_get_str(input, telling[i]);
    if (what.p == NULL && json_object_size(input)) {
        json_write(input, &json);
        what = buf_str(&json);
    }
    text_add_line(out, json_get_str(event, "name"), columns);
    if (what.n) {
        buf_add_char(out, ' ');
        text_add_line(out, what, columns);
    }
}

static void show_tool_use(struct screen *s, const json_t *event)
{
    AUTO_BUF line = {0};
    buf_add_c(&line, "▸ ");
    screen_add_call(&line, event, WHAT_COLUMNS);
    side_line(s, PAINT_YELLOW, buf_str(&line));
}

/* What was shown of it while it ran: how many lines, if the result begins with them. */
static int lines_shown(struct screen *s, const json_t *event, struct str result)
{
    const char *call = json_get_c(event, "toolCallId");
    if (call == NULL || s->output.call[0] == 0 || strcmp(s->output.call, call) != 0)
        return 0;
    struct str shown = buf_str(&s->output.shown);
    while (shown.n && shown.p[shown.n - 1] == '\n')
        shown.n--;
    bool same = str_starts(result, shown) && (result.n == shown.n || result.p[shown.n] == '\n');
    int lines = same ? s->output.lines : 0;
    clear_ticker(s);
    end_output(s);
    return lines;
}

static void show_tool_result(struct screen *s, const json_t *event)
{
    AUTO_BUF text = {0};
    AUTO_BUF shown = {0};
    add_text(event, &text);
    while (text.n && text.p[text.n - 1] == '\n')
        text.n--;
    struct str rest = buf_str(&text), line;
    int before = lines_shown(s, event, rest), lines = 0, left_out = 0;
    while (rest.n && str_split(&rest, '\n', &line)) {
        if (lines++ >= RESULT_LINES) {
            left_out++;
        } else if (lines > before) {
            buf_add_c(&shown, shown.n ? "\n" INDENT : INDENT);
            text_add_line(&shown, line, WHAT_COLUMNS);
        }
    }
    if (left_out)
        buf_printf(&shown, "%s" INDENT "… %d more lines", shown.n ? "\n" : "", left_out);
    if (shown.n)
        side_line(s, json_get_bool(event, "isError", false) ? PAINT_RED : PAINT_DIM,
                  buf_str(&shown));
}

static void show_error(struct screen *s, const json_t *event)
{
    const json_t *error = json_object_get(event, "error");
    const json_t *retry = json_object_get(event, "retryStatus");
    const char *code = json_get_c(error, "code"), *type = json_get_c(retry, "type");
    bool again = type && strcmp(type, "retrying") == 0;
    AUTO_BUF line = {0};
    buf_printf(&line, "%s %s: ", again ? "·" : "!", code ? code : "error");
    text_add_safe(&line, json_get_str(error, "message"));
    if (again)
        buf_printf(&line, " (attempt %lld follows)", (long long)json_get_int(retry, "attempt", 0));
    side_line(s, again ? PAINT_YELLOW : PAINT_RED, buf_str(&line));
}

static void show_budget(struct screen *s, const json_t *event)
{
    (void)event;
    screen_note(s, "most of the session's budget is used");
}

static void show_compacted(struct screen *s, const json_t *event)
{
    (void)event;
    screen_note(s, "the conversation was long and has been summed up");
}

static void count_request(struct screen *s, const json_t *event)
{
    const json_t *usage = json_object_get(event, "usage");
    s->requests++;
    s->input_tokens += json_get_int(usage, "inputTokens", 0) +
                       json_get_int(usage, "cacheReadInputTokens", 0) +
                       json_get_int(usage, "cacheCreationInputTokens", 0);
    s->output_tokens += json_get_int(usage, "outputTokens", 0);
    s->cost_usd += json_get_real(event, "costUsd", 0);
    s->unpriced = s->unpriced || (json_is_object(usage) && !json_object_get(event, "costUsd"));
}

static void begin_turn(struct screen *s, const json_t *event)
{
    const char *at = json_get_c(event, "createdAt");
    s->requests = s->input_tokens = s->output_tokens = 0;
    s->cost_usd = 0;
    s->unpriced = false;
    if (at == NULL || !clock_parse(at, &s->began_ms))
        s->began_ms = -1;
}

static void end_turn(struct screen *s, const json_t *event)
{
    const char *type = json_get_c(json_object_get(event, "stopReason"), "type");
    const char *at = json_get_c(event, "createdAt");
    bool well = type && strcmp(type, "end_turn") == 0;
    int64_t now_ms = -1;
    AUTO_BUF line = {0};
    buf_printf(&line, "· %s", well ? "done" : type ? type : "ended");
    if (at && s->began_ms >= 0 && clock_parse(at, &now_ms)) {
        buf_add_c(&line, " after ");
        text_add_ms(&line, now_ms - s->began_ms);
    }
    buf_printf(&line, ": %lld model request%s, %lld tokens in, %lld out, ", (long long)s->requests,
               s->requests == 1 ? "" : "s", (long long)s->input_tokens,
               (long long)s->output_tokens);
    if (s->unpriced && s->cost_usd == 0)
        buf_add_c(&line, "no price known");
    else
        text_add_usd(&line, s->cost_usd);
    side_line(s, well ? PAINT_DIM : PAINT_RED, buf_str(&line));
}

static const struct {
    const char *type;
    void (*show)(struct screen *s, const json_t *event);
} kinds[] = {
    {"event_start", show_start},
    {"event_delta", show_delta},
    {"event_discarded", show_discarded},
    {"user.message", show_user},
    {"agent.thinking", show_thinking},
    {"agent.message", show_message},
    {"agent.tool_use", show_tool_use},
    {"agent.mcp_tool_use", show_tool_use},
    {"agent.custom_tool_use", show_tool_use},
    {"agent.tool_result", show_tool_result},
    {"session.error", show_error},
    {"session.budget_warning", show_budget},
    {"session.compacted", show_compacted},
    {"session.status_run_started", begin_turn},
    {"span.model_request_end", count_request},
    {"session.status_idle", end_turn},
};

void screen_event(struct screen *s, const char *type, const json_t *event)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].type, type) == 0)
            kinds[i].show(s, event);
    }
}

void screen_break(struct screen *s)
{
    s->started_id[0] = 0;
    clear_ticker(s);
    end_output(s);
}
