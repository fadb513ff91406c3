/* R24: what the gateway itself answers must not look to Pi like something to try again, whatever
   the wire API: one part of the service decides about retries. Judged by the pattern inside the
   installed Pi, run by the pinned Node. */
#include "base/buf.h"
#include "base/json.h"
#include "broker/fault.h"
#include "broker/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

/* Takes the pattern's parts out of Pi's bundle and prints the lines of standard input that match.
 */
static const char judge[] =
    "const fs = require('node:fs'), dir = 'build/runtime/pi/dist/bundle/chunks/';"
    "const name = 'RETRYABLE_PROVIDER_ERROR_PATTERN=buildProviderErrorPattern(';"
    "const file = fs.readdirSync(dir).map((f) => fs.readFileSync(dir + f, 'utf8'))"
    "    .find((text) => text.includes(',' + name));"
    "const from = file.indexOf(',' + name) + 1 + name.length;"
    "const list = Function('return ' + file.slice(from, file.indexOf('\"])', from) + 2))();"
    "if (list.length < 30) throw new Error('the pattern has only ' + list.length + ' parts');"
    "const pattern = new RegExp(list.join('|'), 'i');"
    "for (const line of fs.readFileSync(0, 'utf8').split('\\n'))"
    "    if (pattern.test(line)) console.log(line);";

/* Prints the parts of Pi's other pattern: limits that no waiting ends. */
static const char hopeless[] =
    "const fs = require('node:fs'), dir = 'build/runtime/pi/dist/bundle/chunks/';"
    "const name = 'NON_RETRYABLE_PROVIDER_LIMIT_ERROR_PATTERN=buildProviderErrorPattern(';"
    "const file = fs.readdirSync(dir).map((f) => fs.readFileSync(dir + f, 'utf8'))"
    "    .find((text) => text.includes(name));"
    "const from = file.indexOf(name) + name.length;"
    "const list = Function('return ' + file.slice(from).match(/^.*?['\\x22]\\]\\)/)[0].slice(0, "
    "-1))();"
    "console.log(list.join('\\n'));";

static void run_node(const char *script, const struct buf *lines, struct buf *out)
{
    int in[2], back[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(back), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(back[1], 1);
        close(in[1]);
        execl("build/runtime/node/bin/node", "node", "-e", script, NULL);
        _exit(127);
    }
    close(in[0]);
    close(back[1]);
    if (lines)
        assert_int_equal(write(in[1], lines->p, lines->n), (ssize_t)lines->n);
    close(in[1]);
    char part[4096];
    for (ssize_t n; (n = read(back[0], part, sizeof part)) > 0;)
        buf_add(out, part, (size_t)n);
    close(back[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* What Pi would take as retryable of `lines`. */
static void matches(const struct buf *lines, struct buf *out)
{
    run_node(judge, lines, out);
}

/* Every text of ours that reaches a host, as it stands in the sources between quotes after these
 * calls. */
static void collect_texts(const char *path, struct buf *out)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        for (char *p = line; (p = strchr(p, '"')) != NULL;) {
            char *end = strchr(++p, '"');
            if (end == NULL)
                break;
            /* 424 is the status that an SDK puts before the text */
            if (memchr(p, ' ', (size_t)(end - p)))
                buf_printf(out, "424 %.*s\n", (int)(end - p), p);
            p = end + 1;
        }
    }
    fclose(f);
}

static void pi_does_not_retry_what_the_gateway_says(void **state)
{
    (void)state;
    static const char *const sources[] = {"src/broker/exchange.c",    "src/broker/dial.c",
                                          "src/broker/upstream.c",    "src/broker/credential.c",
                                          "src/session/turn_retry.c", "src/session/turn_budget.c"};
    AUTO_BUF texts = {0}, found = {0};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        collect_texts(sources[i], &texts);
    assert_non_null(strstr(texts.p, "nothing listens there"));
    assert_non_null(strstr(texts.p, "broke off its answer"));
    assert_non_null(strstr(texts.p, "the service has given up"));
    matches(&texts, &found);
    assert_string_equal(found.p ? found.p : "", "");
}

static void the_error_bodies_are_not_retried_either(void **state)
{
    (void)state;
    static const int statuses[] = {400, 401, 402, 403, 404, 413, 424};
    static const char *const codes[] = {
        "credential_missing",  "credential_refused",  "address_not_allowed", "model_unreachable",
        "model_stream_broken", "model_not_found",     "cancelled",           "retries_exhausted",
        "interrupted",         "session_not_running", "budget_exhausted"};
    enum {
        CODES = sizeof codes / sizeof *codes
    };
    AUTO_BUF lines = {0}, found = {0};
    struct str names = str_of(wire_names()), name;
    while (str_split(&names, ',', &name)) {
        char text[64];
        snprintf(text, sizeof text, "%.*s", STR_ARG(name));
        const struct wire_api *api = wire_find(text + strspn(text, " "));
        assert_non_null(api);
        for (size_t i = 0; i < 7; i++) {
            for (size_t j = 0; j < CODES; j++) {
                AUTO_JSON body = api->error_body(statuses[i], codes[j], "text");
                json_write(body, &lines);
                buf_add_char(&lines, '\n');
            }
        }
    }
    matches(&lines, &found);
    assert_string_equal(found.p ? found.p : "", "");
}

/* What Pi gives up at once the service does too, or the two would count differently. */
static void what_pi_calls_hopeless_is_unrecoverable(void **state)
{
    (void)state;
    AUTO_BUF parts = {0};
    run_node(hopeless, NULL, &parts);
    struct str rest = buf_str(&parts), part;
    unsigned literal = 0, patterns = 0;
    while (str_split(&rest, '\n', &part)) {
        if (part.n == 0)
            continue;
        bool is_pattern = memchr(part.p, '\\', part.n) != NULL;
        patterns += is_pattern;
        literal += !is_pattern;
        if (!is_pattern)
            assert_true(fault_of_answer(429, part)->unrecoverable);
    }
    assert_int_equal(literal, 10);
    assert_int_equal(patterns, 1); /* a code of one provider */
    assert_false(fault_of_answer(429, STR("too many requests"))->unrecoverable);
}

static void the_pattern_is_the_real_one(void **state)
{
    (void)state;
    AUTO_BUF lines = {0}, found = {0};
    buf_add_c(&lines, "503 Service Unavailable\nplain words\nconnect ECONNREFUSED\n");
    matches(&lines, &found);
    assert_string_equal(found.p, "503 Service Unavailable\nconnect ECONNREFUSED\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pattern_is_the_real_one),
        cmocka_unit_test(pi_does_not_retry_what_the_gateway_says),
        cmocka_unit_test(the_error_bodies_are_not_retried_either),
        cmocka_unit_test(what_pi_calls_hopeless_is_unrecoverable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
