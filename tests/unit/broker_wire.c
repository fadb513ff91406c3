/* src/broker/wire*.c and sse_reader.c: what each wire API lets through, and how its streams tell
 * usage. */
#include "base/json.h"
#include "broker/wire.h"

#include "base/arena.h"
#include "base/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <cmocka.h>
#undef fail /* ours */

#define wrong(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

/* Events */

static void add_event(void *arg, const struct sse_event *event)
{
    json_t *list = arg, *item = json_object();
    json_set_str(item, "type", event->type);
    json_set_str(item, "data", event->data);
    json_set_str(item, "lastEventId", event->last_id);
    json_array_append_new(list, item);
}

static json_t *events_of(struct str stream, size_t piece, size_t max)
{
    struct sse_reader r;
    json_t *list = json_array();
    sse_reader_init(&r, max, add_event, list);
    for (size_t at = 0; at < stream.n; at += piece) {
        size_t n = stream.n - at < piece ? stream.n - at : piece;
        /* its own allocation, so that a sanitizer sees a read beyond it */
        char *copy = malloc(n);
        memcpy(copy, stream.p + at, n);
        sse_reader_feed(&r, (struct str){copy, n});
        free(copy);
    }
    sse_reader_done(&r);
    return list;
}

static void the_reader_agrees_with_the_vectors_in_pieces_of_any_size(void **state)
{
    (void)state;
    AUTO_BUF text = {0};
    AUTO_JSON file = NULL;
    assert_int_equal(fd_read_file("tests/vectors/sse_vectors.json", 1 << 20, &text), 0);
    assert_int_equal(json_read(buf_str(&text), &file), 0);
    const json_t *vectors = json_object_get(file, "vectors");
    assert_true(json_array_size(vectors) > 40);
    size_t i;
    json_t *v;
    json_array_foreach(vectors, i, v)
    {
        struct str stream = json_get_str(v, "stream");
        for (size_t piece = 1; piece <= stream.n; piece = piece < 8 ? piece + 1 : stream.n + 1) {
            AUTO_JSON got = events_of(stream, piece, 1 << 20);
            if (!json_equal(got, json_object_get(v, "events")))
                wrong("%s, in pieces of %zu: %s", json_get_c(v, "name"), piece,
                      json_dumps(got, JSON_COMPACT));
        }
        AUTO_JSON whole = events_of(stream, stream.n, 1 << 20);
        assert_true(json_equal(whole, json_object_get(v, "events")));
    }
}

static void an_event_that_is_too_long_is_dropped_and_the_next_one_is_read(void **state)
{
    (void)state;
    static const char *const streams[] = {
        "data: 0123456789012345678901234567890123456789\n\ndata: ok\n\n",
        "data: 01234567890123\ndata: 01234567890123\ndata: 01234567890123\n\ndata: ok\n\n",
        ":01234567890123456789012345678901234567890123456789\ndata: x\n\ndata: ok\n\n",
    };
    for (size_t i = 0; i < 3; i++) {
        for (size_t piece = 1; piece < 40; piece++) {
            AUTO_JSON got = events_of(str_of(streams[i]), piece, 32);
            assert_int_equal(json_array_size(got), 1);
            assert_string_equal(json_get_c(json_array_get(got, 0), "data"), "ok");
        }
    }
}

/* Usage */

struct stream {
    const char *name, *api, *text;
    struct wire_usage usage;
    bool has_usage, finished;
    size_t produced;
    const char *fault;
};

static const struct stream streams[] = {
    {"usage in a last chunk without choices",
     "openai-completions",
     "data: "
     "{\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n"
     "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}],\"usage\":null}\n\n"
     "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n"
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":20,"
     "\"prompt_tokens_details\":{\"cached_tokens\":60,\"cache_write_tokens\":10}}}\n\n"
     "data: [DONE]\n\n",
     {30, 20, 60, 10},
     true,
     true,
     5,
     ""},
    {"usage in every chunk: the last one wins",
     "openai-completions",
     "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":{\"prompt_tokens\":9,"
     "\"completion_tokens\":1}}\n\n"
     "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"length\"}],"
     "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n",
     {9, 2, 0, 0},
     true,
     true,
     2,
     ""},
    {"DeepSeek's cache count",
     "openai-completions",
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":1,"
     "\"prompt_cache_hit_tokens\":40}}\n\ndata: [DONE]\n\n",
     {10, 1, 40, 0},
     true,
     true,
     0,
     ""},
    {"Moonshot's usage in the choice",
     "openai-completions",
     "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\",\"usage\":{\"prompt_tokens\":5,"
     "\"completion_tokens\":2,\"cached_tokens\":1}}]}\n\n",
     {4, 2, 1, 0},
     true,
     true,
     0,
     ""},
    {"reasoning and tool arguments are output",
     "openai-completions",
     "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"think\"}}]}\n\n"
     "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"ls\","
     "\"arguments\":\"\"}}]}}]}\n\n"
     "data: "
     "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]}"
     "}]}\n\n",
     {0, 0, 0, 0},
     false,
     false,
     9,
     ""},
    {"more cached than prompted is clamped",
     "openai-completions",
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":-3,"
     "\"prompt_tokens_details\":{\"cached_tokens\":60}}}\n\n",
     {0, 0, 60, 0},
     true,
     false,
     0,
     ""},
    {"an error in the stream",
     "openai-completions",
     "data: {\"error\":{\"message\":\"too much\",\"type\":\"rate_limit_error\",\"code\":429}}\n\n",
     {0, 0, 0, 0},
     false,
     false,
     0,
     "rate_limit_error"},
    {"junk is passed over",
     "openai-completions",
     "data: {\"choices\":5}\n\ndata: [1,2]\n\ndata: nope\n\ndata: \"x\"\n\n"
     "data: {\"choices\":[7,null,{\"delta\":[]}],\"usage\":[],\"error\":\"x\"}\n\n",
     {0, 0, 0, 0},
     false,
     false,
     0,
     ""},

    {"cumulative counts replace",
     "anthropic-messages",
     "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
     "\"input_tokens\":11,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":200,"
     "\"output_tokens\":3}}}\n\n"
     "event: ping\ndata: {\"type\":\"ping\"}\n\n"
     "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
     "\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n"
     "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{"
     "\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n"
     "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{"
     "\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n"
     "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":40,"
     "\"input_tokens\":null}}\n\n"
     "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":42}}\n\n"
     "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
     {11, 42, 200, 5},
     true,
     true,
     9,
     ""},
    {"cut after the start",
     "anthropic-messages",
     "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
     "\"input_tokens\":11,\"output_tokens\":1}}}\n\n",
     {11, 1, 0, 0},
     true,
     false,
     0,
     ""},
    {"an error event",
     "anthropic-messages",
     "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
     "\"message\":\"Overloaded\"}}\n\n",
     {0, 0, 0, 0},
     false,
     false,
     0,
     "overloaded_error"},

    {"usage on the terminal event",
     "openai-responses",
     "event: response.created\ndata: "
     "{\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n"
     "event: response.reasoning_summary_text.delta\n"
     "data: {\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"hm\"}\n\n"
     "event: response.output_text.delta\n"
     "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n"
     "event: response.function_call_arguments.delta\n"
     "data: {\"type\":\"response.function_call_arguments.delta\",\"delta\":\"{}\"}\n\n"
     "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{"
     "\"input_tokens\":70,\"output_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":50,"
     "\"cache_write_tokens\":5}}}}\n\n",
     {15, 30, 50, 5},
     true,
     true,
     9,
     ""},
    {"incomplete counts too",
     "openai-responses",
     "event: response.incomplete\ndata: {\"type\":\"response.incomplete\",\"response\":{\"usage\":{"
     "\"input_tokens\":7,\"output_tokens\":3}}}\n\n",
     {7, 3, 0, 0},
     true,
     true,
     0,
     ""},
    {"failed says why",
     "openai-responses",
     "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{"
     "\"code\":\"server_error\",\"message\":\"oops\"},\"usage\":null}}\n\n",
     {0, 0, 0, 0},
     false,
     true,
     0,
     "server_error"},
    {"a flat error event",
     "openai-responses",
     "event: error\ndata: "
     "{\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow\"}\n\n",
     {0, 0, 0, 0},
     false,
     false,
     0,
     "rate_limit_exceeded"},

    {"the last chunk wins; thoughts are beside the candidates",
     "google-generative-ai",
     "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hm\",\"thought\":true},"
     "{\"text\":\"hello\"}]}}],\"usageMetadata\":{\"promptTokenCount\":30,"
     "\"candidatesTokenCount\":1}}\r\n\r\n"
     "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"a\":1}}]},"
     "\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":30,"
     "\"toolUsePromptTokenCount\":4,\"candidatesTokenCount\":6,\"thoughtsTokenCount\":9,"
     "\"cachedContentTokenCount\":10}}\r\n\r\n",
     {24, 15, 10, 0},
     true,
     true,
     14,
     ""},
    {"a blocked prompt is an answer",
     "google-generative-ai",
     "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{"
     "\"promptTokenCount\":3}}\n\n",
     {3, 0, 0, 0},
     true,
     true,
     0,
     ""},
    {"an error object",
     "google-generative-ai",
     "data: {\"error\":{\"code\":503,\"message\":\"busy\",\"status\":\"UNAVAILABLE\"}}\n\n",
     {0, 0, 0, 0},
     false,
     false,
     0,
     "UNAVAILABLE"},
};

static void check_stream(const struct stream *t, size_t split)
{
    struct wire_meter m;
    struct str text = str_of(t->text);
    wire_meter_init(&m, wire_find(t->api));
    wire_meter_feed(&m, (struct str){text.p, split});
    wire_meter_feed(&m, (struct str){text.p + split, text.n - split});
    if (memcmp(&m.usage, &t->usage, sizeof m.usage) != 0 || m.has_usage != t->has_usage ||
        m.finished != t->finished || m.produced_bytes != t->produced ||
        m.started != (t->produced > 0) || strcmp(m.fault_type, t->fault) != 0)
        wrong("%s: %s, split at %zu: in %ld out %ld read %ld write %ld; usage %d finished %d "
              "produced %zu fault \"%s\"",
              t->api, t->name, split, (long)m.usage.input, (long)m.usage.output,
              (long)m.usage.cache_read, (long)m.usage.cache_write, m.has_usage, m.finished,
              m.produced_bytes, m.fault_type);
    wire_meter_done(&m);
}

static void usage_is_read_however_the_stream_is_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        for (size_t split = 0; split <= strlen(streams[i].text); split++)
            check_stream(&streams[i], split);
}

static void usage_is_read_byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        struct wire_meter m;
        wire_meter_init(&m, wire_find(streams[i].api));
        for (const char *p = streams[i].text; *p; p++)
            wire_meter_feed(&m, (struct str){p, 1});
        assert_memory_equal(&m.usage, &streams[i].usage, sizeof m.usage);
        wire_meter_done(&m);
    }
}

/* Targets */

static void only_model_requests_are_let_through(void **state)
{
    (void)state;
    static const struct {
        const char *api, *target;
        bool allowed;
    } cases[] = {
        {"openai-completions", "/chat/completions", true},
        {"openai-completions", "/chat/completions?x=1", false},
        {"openai-completions", "/chat/completions/", false},
        {"openai-completions", "/models", false},
        {"openai-completions", "", false},
        {"openai-responses", "/responses", true},
        {"openai-responses", "/responses/resp_1", false},
        {"anthropic-messages", "/v1/messages?beta=true", true},
        {"anthropic-messages", "/v1/messages", true},
        {"anthropic-messages", "/v1/messages/batches", false},
        {"anthropic-messages", "/v1/messages?beta=false", false},
        {"google-generative-ai", "/models/gemini-2.5-pro:streamGenerateContent?alt=sse", true},
        {"google-generative-ai", "/models/gemini:streamGenerateContent", false},
        {"google-generative-ai", "/models/..:streamGenerateContent?alt=sse", false},
        {"google-generative-ai", "/models/a/b:streamGenerateContent?alt=sse", false},
        {"google-generative-ai", "/models/:streamGenerateContent?alt=sse", false},
        {"google-generative-ai", "/models/a:streamGenerateContent?alt=sse&key=x", false},
        {"google-generative-ai", "/models/a:generateContent", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (wire_target_allowed(wire_find(cases[i].api), str_of(cases[i].target)) !=
            cases[i].allowed)
            wrong("%s %s\n", cases[i].api, cases[i].target);
    assert_null(wire_find("mistral-conversations"));
    assert_null(wire_find(NULL));
}

static void a_request_names_its_model(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool ok;
    } cases[] = {
        {"{\"model\":\"m/x\"}", true},
        {" {\n\"messages\" : [ {\"model\":\"other\",\"a\":\"}]\\\"\"} ] , \"model\" : \"m/x\" } ",
         true},
        {"{\"a\":1.5e3,\"b\":null,\"c\":{\"model\":\"y\"},\"model\":\"m/x\",\"d\":[]}", true},
        {"{\"a\":\"\\\\\",\"model\":\"m/x\"}", true},
        {"", false},
        {"{}", false},
        {"[]", false},
        {"{\"model\":\"other\"}", false},
        {"{\"model\":7}", false},
        {"{\"model\":null}", false},
        {"{\"model\":[\"m/x\"]}", false},
        {"{\"model\":\"m/x\"", false},
        {"{\"model\":\"m/x\"}x", false},
        {"{\"model\":\"m/x\"}{\"model\":\"other\"}", false},
        {"{\"model\":\"m/x\",\"model\":\"other\"}", false},
        {"{\"model\":\"other\",\"model\":\"m/x\"}", false},
        {"{\"model\":\"m/x\",\"model\":\"m/x\"}", false},
        {"{\"mod\\u0065l\":\"other\",\"model\":\"m/x\"}", false},
        {"{\"c\":{\"model\":\"m/x\"}}", false},
        {"{\"a\":\"\\\",\\\"model\\\":\\\"m/x\\\"\"}", false},
        {"{\"model\":\"m/x\",}", false},
        {"{\"a\":]},\"model\":\"m/x\"}", false},
        {"{\"model\":\"m/x\\u0000\"}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (wire_names_model(&wire_openai_responses, STR("/responses"), str_of(cases[i].body),
                             "m/x") != cases[i].ok)
            wrong("%s\n", cases[i].body);
    const struct wire_api *google = &wire_google_generative_ai;
    assert_true(
        wire_names_model(google, STR("/models/g-1:streamGenerateContent?alt=sse"), STR(""), "g-1"));
    assert_false(wire_names_model(google, STR("/models/g-2:streamGenerateContent?alt=sse"),
                                  STR("{\"model\":\"g-1\"}"), "g-1"));
    assert_false(wire_names_model(google, STR("/mod"), STR(""), "g-1"));
}

/* Words */

static void a_failed_answers_message_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *body, *text;
    } cases[] = {
        {"{\"error\":{\"message\":\"a\"}}", "a"},
        {"{\"type\":\"error\",\"error\":{\"type\":\"t\",\"message\":\"b\"}}", "b"},
        {"[{\"error\":{\"message\":\"c\"}}]", "c"},
        {"{\"error\":\"d\"}", "d"},
        {"{\"message\":\"e\"}", "e"},
        {"{\"detail\":1}", NULL},
        {"<html>", NULL},
        {"{\"error\":{\"message\":\"0123456\xc3\xa9xxx\"}}",
         "0123456"}, /* never half a character */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[9] = "";
        bool found = wire_error_text(str_of(cases[i].body), text, sizeof text);
        assert_int_equal(found, cases[i].text != NULL);
        if (found)
            assert_string_equal(text, cases[i].text);
    }
}

static void an_image_does_not_count_by_its_bytes(void **state)
{
    (void)state;
    AUTO_BUF b = {0};
    buf_add_c(&b, "{\"data\":\"");
    for (int i = 0; i < 400000; i++)
        buf_add_char(&b, "ABCD"[i % 4]);
    buf_add_c(&b, "\"}");
    int64_t tokens = wire_estimate_tokens(buf_str(&b));
    assert_true(tokens > 1000 && tokens < 2000);
    assert_int_equal(wire_estimate_tokens(STR("four words of text.")), 5);
    assert_int_equal(wire_estimate_tokens(STR("")), 0);
}

static void the_key_goes_where_the_provider_wants_it(void **state)
{
    (void)state;
    static const struct {
        const char *api, *provider, *header, *prefix;
    } cases[] = {
        {"anthropic-messages", "anthropic", "x-api-key", ""},
        {"anthropic-messages", "github-copilot", "authorization", "Bearer "},
        {"openai-responses", "github-copilot", "authorization", "Bearer "},
        {"openai-completions", "groq", "authorization", "Bearer "},
        {"google-generative-ai", "google", "x-goog-api-key", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct wire_auth auth = wire_auth_of(wire_find(cases[i].api), cases[i].provider);
        assert_int_equal(strcasecmp(auth.header, cases[i].header), 0);
        assert_string_equal(auth.prefix, cases[i].prefix);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reader_agrees_with_the_vectors_in_pieces_of_any_size),
        cmocka_unit_test(an_event_that_is_too_long_is_dropped_and_the_next_one_is_read),
        cmocka_unit_test(usage_is_read_however_the_stream_is_cut),
        cmocka_unit_test(usage_is_read_byte_by_byte),
        cmocka_unit_test(only_model_requests_are_let_through),
        cmocka_unit_test(a_request_names_its_model),
        cmocka_unit_test(a_failed_answers_message_is_found),
        cmocka_unit_test(an_image_does_not_count_by_its_bytes),
        cmocka_unit_test(the_key_goes_where_the_provider_wants_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
