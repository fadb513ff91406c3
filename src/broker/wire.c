#include "broker/wire.h"

#include <ctype.h>
#include <stdio.h>

/* A complete response rides in one event of openai-responses, an image in one of Google's. */
#define EVENT_MAX (8u << 20)
#define BYTES_PER_TOKEN 4
#define BASE64_RUN_MIN 1024
#define TOKENS_PER_IMAGE 1500

static const struct wire_api *const apis[] = {
    &wire_openai_completions,
    &wire_anthropic_messages,
    &wire_openai_responses,
    &wire_google_generative_ai,
    NULL,
};

struct wire_auth wire_auth_of(const struct wire_api *api, const char *provider)
{
    /* Pi's catalogue names no scheme; its own clients know this one provider. */
    if (strcmp(provider, "github-copilot") == 0)
        return (struct wire_auth){"authorization", "Bearer "};
    return (struct wire_auth){api->auth_header, api->auth_prefix};
}

const struct wire_api *wire_find(const char *name)
{
    for (size_t i = 0; name && apis[i]; i++)
        if (strcmp(apis[i]->name, name) == 0)
            return apis[i];
    return NULL;
}

const char *wire_names(void)
{
    return "openai-completions, anthropic-messages, openai-responses, google-generative-ai";
}

static bool segment_char(char c)
{
    return isalnum((unsigned char)c) || (c != 0 && strchr("-._~%@+", c) != NULL);
}

/* Length of what '*' takes at `text`: a path segment up to `stop`, not "." or "..". */
static size_t match_segment(struct str text, char stop)
{
    size_t n = 0;
    while (n < text.n && text.p[n] != stop && segment_char(text.p[n]))
        n++;
    bool dots = (n == 1 && text.p[0] == '.') || (n == 2 && memcmp(text.p, "..", 2) == 0);
    return dots ? 0 : n;
}

static bool matches(const char *p, struct str target)
{
    for (; *p; p++) {
        size_t n = *p == '*'                           ? match_segment(target, p[1])
                   : target.n > 0 && target.p[0] == *p ? 1
                                                       : 0;
        if (n == 0)
            return false;
        target = (struct str){target.p + n, target.n - n};
    }
    return target.n == 0;
}

bool wire_target_allowed(const struct wire_api *api, struct str target)
{
    return matches(api->target, target) || (api->target_also && matches(api->target_also, target));
}

static bool target_names(const struct wire_api *api, struct str target, const char *model)
{
    size_t before = strcspn(api->target, "*");
    if (target.n < before)
        return false;
    struct str rest = {target.p + before, target.n - before};
    size_t n = match_segment(rest, api->target[before + 1]);
    return str_is((struct str){rest.p, n}, model);
}

/* The string that begins at *at (its quote): what lies between the quotes, as written. */
static bool walk_string(struct str text, size_t *at, struct str *out)
{
    size_t from = ++*at;
    for (; *at < text.n && text.p[*at] != '"'; ++*at)
        if (text.p[*at] == '\\')
            ++*at;
    if (*at >= text.n)
        return false;
    *out = (struct str){text.p + from, *at - from};
    ++*at;
    return true;
}

/* To the comma or brace that ends a value, over what is nested in it. */
static bool walk_value(struct str text, size_t *at)
{
    size_t depth = 0;
    struct str skipped;
    while (*at < text.n) {
        char c = text.p[*at];
        if (c == '"') {
            if (!walk_string(text, at, &skipped))
                return false;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}'))
            return true;
        if (c == '{' || c == '[')
            depth++;
        if ((c == '}' || c == ']') && depth-- == 0)
            return false;
        ++*at;
    }
    return false;
}

static void walk_blanks(struct str text, size_t *at)
{
    while (*at < text.n && strchr(" \t\r\n", text.p[*at]) && text.p[*at])
        ++*at;
}

static bool walk_char(struct str text, size_t *at, char c)
{
    walk_blanks(text, at);
    if (*at >= text.n || text.p[*at] != c)
        return false;
    ++*at;
    walk_blanks(text, at);
    return true;
}

/* One member of the top-level object; counts it when it is "model" with the right value. */
static bool walk_member(struct str body, size_t *at, const char *model, size_t *hits)
{
    struct str key, value;
    if (*at >= body.n || body.p[*at] != '"' || !walk_string(body, at, &key) ||
        memchr(key.p, '\\', key.n) || !walk_char(body, at, ':'))
        return false;
    if (!str_is(key, "model"))
        return walk_value(body, at);
    if (*at >= body.n || body.p[*at] != '"' || !walk_string(body, at, &value) ||
        !str_is(value, model))
        return false;
    ++*hits;
    walk_blanks(body, at);
    return true;
}

static bool body_names(struct str body, const char *model)
{
    size_t at = 0, hits = 0;
    if (!walk_char(body, &at, '{'))
        return false;
    do
        if (!walk_member(body, &at, model, &hits))
            return false;
    while (walk_char(body, &at, ','));
    return walk_char(body, &at, '}') && at == body.n && hits == 1;
}

bool wire_names_model(const struct wire_api *api, struct str target, struct str body,
                      const char *model)
{
    return strchr(api->target, '*') ? target_names(api, target, model) : body_names(body, model);
}

const struct wire_api *wire_of_target(struct str target)
{
    for (size_t i = 0; apis[i]; i++)
        if (wire_target_allowed(apis[i], target))
            return apis[i];
    return apis[0];
}

static void on_event(void *arg, const struct sse_event *event)
{
    struct wire_meter *m = arg;
    AUTO_JSON data = NULL;
    if (json_read(event->data, &data) != 0)
        data = NULL;
    bool passed_over = m->api->passes_unnamed && str_is(event->type, "message");
    if (data == NULL && !passed_over && event->data.n && !str_is(event->data, "[DONE]"))
        m->unreadable++;
    m->api->on_event(m, event->type, event->data, data);
}

void wire_meter_init(struct wire_meter *m, const struct wire_api *api)
{
    *m = (struct wire_meter){.api = api};
    sse_reader_init(&m->reader, EVENT_MAX, on_event, m);
}

void wire_meter_done(struct wire_meter *m)
{
    sse_reader_done(&m->reader);
}

void wire_meter_feed(struct wire_meter *m, struct str bytes)
{
    sse_reader_feed(&m->reader, bytes);
}

bool wire_meter_choked(const struct wire_meter *m)
{
    bool torn = m->reader.line.n > 0 || m->reader.has_data;
    return m->unreadable > 0 || (torn && m->api->reads_last);
}

void wire_meter_produced(struct wire_meter *m, const json_t *value)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return;
    m->started = true;
    m->produced_bytes += json_string_length(value);
}

static const char *fault_type(const json_t *error)
{
    static const char *const keys[] = {"type", "code", "status"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *word = json_get_c(error, keys[i]);
        /* An event {type:"error", code, message} is its own error object. */
        if (word && strcmp(word, "error") != 0)
            return word;
    }
    return "error";
}

void wire_meter_fault(struct wire_meter *m, const json_t *error)
{
    const char *text = json_get_c(error, "message");
    snprintf(m->fault_type, sizeof m->fault_type, "%s", fault_type(error));
    snprintf(m->fault_text, sizeof m->fault_text, "%s", text ? text : "");
}

static bool base64_char(char c)
{
    return isalnum((unsigned char)c) || c == '+' || c == '/' || c == '=' || c == '-' || c == '_';
}

int64_t wire_estimate_tokens(struct str text)
{
    size_t plain = 0, images = 0;
    for (size_t i = 0; i < text.n;) {
        size_t start = i;
        while (i < text.n && base64_char(text.p[i]))
            i++;
        if (i - start >= BASE64_RUN_MIN)
            images++;
        else
            plain += i - start;
        if (i < text.n) {
            plain++;
            i++;
        }
    }
    return (int64_t)((plain + BYTES_PER_TOKEN - 1) / BYTES_PER_TOKEN + images * TOKENS_PER_IMAGE);
}

/* {error:{message}}, {error:"…"}, {message}, or Google's list of one of these. */
static const char *find_message(const json_t *body)
{
    if (json_is_array(body))
        body = json_array_get(body, 0);
    const json_t *error = json_object_get(body, "error");
    const char *text = json_is_string(error) ? json_string_value(error) : NULL;
    if (text == NULL)
        text = json_get_c(error, "message");
    return text ? text : json_get_c(body, "message");
}

bool wire_error_text(struct str body, char *out, size_t cap)
{
    AUTO_JSON j = NULL;
    if (json_read(body, &j) != 0) {
        j = NULL;
        return false;
    }
    const char *text = find_message(j);
    if (text == NULL)
        return false;
    struct str whole = str_of(text);
    snprintf(out, cap, "%.*s", (int)str_utf8_floor(whole, whole.n < cap ? whole.n : cap - 1), text);
    return true;
}

int64_t wire_count(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    double n = json_number_value(v);
    return n > 0 && n < 1e15 ? (int64_t)n : 0;
}
