/* R24: what the gateway itself answers must not look to Pi like something to try again, whatever
   the wire API: one part of the service decides about retries. Judged by the pattern inside the
   installed Pi, run by the pinned Node. */
#include "base/buf.h"
#include "base/json.h"
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

/* What Pi would take as retryable of `lines`. */
static void matches(const struct buf *lines, struct buf *out)
{
    int in[2], back[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(back), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(back[1], 1);
        close(in[1]);
        execl("build/runtime/node/bin/node", "node", "-e", judge, NULL);
        _exit(127);
    }
    close(in[0]);
    close(back[1]);
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
    static const char *const sources[] = {"src/broker/exchange.c", "src/broker/dial.c",
                                          "src/broker/upstream.c", "src/broker/credential.c"};
    AUTO_BUF texts = {0}, found = {0};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        collect_texts(sources[i], &texts);
    assert_non_null(strstr(texts.p, "nothing listens there"));
    assert_non_null(strstr(texts.p, "broke off its answer"));
    matches(&texts, &found);
    assert_string_equal(found.p ? found.p : "", "");
}

static void the_error_bodies_are_not_retried_either(void **state)
{
    (void)state;
    static const int statuses[] = {400, 401, 402, 403, 404, 413, 424};
    static const char *const codes[] = {
        "credential_missing", "credential_refused",  "address_not_allowed",
        "model_unreachable",  "model_stream_broken", "model_not_found",
        "cancelled"};
    AUTO_BUF lines = {0}, found = {0};
    struct str names = str_of(wire_names()), name;
    while (str_split(&names, ',', &name)) {
        char text[64];
        snprintf(text, sizeof text, "%.*s", STR_ARG(name));
        const struct wire_api *api = wire_find(text + strspn(text, " "));
        assert_non_null(api);
        for (size_t i = 0; i < 7; i++) {
            for (size_t j = 0; j < 7; j++) {
                AUTO_JSON body = api->error_body(statuses[i], codes[j], "text");
                json_write(body, &lines);
                buf_add_char(&lines, '\n');
            }
        }
    }
    matches(&lines, &found);
    assert_string_equal(found.p ? found.p : "", "");
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
