/* The words of a command line, read against the table of its command (command.h), and its help. */
#include "cli/command.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define VARIABLE_MAX 64
#define STATUS_USAGE 2
#define STATUS_USAGE_OF_COMMAND 125 /* 2 could be the status of the command behind -- */

static int usage_status(const struct command *command)
{
    return command->rest ? STATUS_USAGE_OF_COMMAND : STATUS_USAGE;
}

static int wrong(const struct command *command, const char *text, const char *word)
{
    fprintf(stderr, "pi-managed %s: %s %s\nSee: pi-managed %s --help\n", command->name, text, word,
            command->name);
    return usage_status(command);
}

static int distance(const char *a, const char *b)
{
    size_t n = strlen(b);
    int row[64];
    if (n >= 64)
        return 64;
    for (size_t j = 0; j <= n; j++)
        row[j] = (int)j;
    for (size_t i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            int insert = row[j - 1] + 1, remove = row[j] + 1;
            diagonal = row[j];
            row[j] = change < insert ? change : insert;
            row[j] = row[j] < remove ? row[j] : remove;
        }
    }
    return row[n];
}

const char *nearest_name(const char *word, const char *const *names)
{
    const char *best = NULL;
    int least = strlen(word) < 6 ? (int)strlen(word) / 2 + 1 : 4;
    for (; *names; names++) {
        int d = distance(word, *names);
        if (d < least) {
            least = d;
            best = *names;
        }
    }
    return best;
}

static int unknown_option(const struct command *command, const char *word)
{
    const char *names[OPTIONS_MAX + 1] = {0};
    for (size_t i = 0; command->options[i].name; i++)
        names[i] = command->options[i].name;
    fprintf(stderr, "pi-managed %s: there is no option --%s", command->name, word);
    const char *near = nearest_name(word, names);
    if (near)
        fprintf(stderr, "; do you mean --%s?", near);
    fprintf(stderr, "\nSee: pi-managed %s --help\n", command->name);
    return usage_status(command);
}

static int find_option(const struct command *command, const char *name, size_t n)
{
    for (int i = 0; command->options[i].name; i++) {
        if (strlen(command->options[i].name) == n && memcmp(command->options[i].name, name, n) == 0)
            return i;
    }
    return -1;
}

/* Takes one --option (and its value); returns how many words it used, 0 after saying what is wrong.
 */
static int take_option(struct invocation *call, int left, char **argv)
{
    const struct command *command = call->command;
    const char *name = argv[0] + 2;
    const char *equals = strchr(name, '=');
    int i = find_option(command, name, equals ? (size_t)(equals - name) : strlen(name));
    if (i < 0) {
        unknown_option(command, name);
        return 0;
    }
    bool flag = command->options[i].value == NULL;
    if (flag && equals) {
        wrong(command, "this option takes no value:", argv[0]);
        return 0;
    }
    if (!flag && !equals && left < 2) {
        wrong(command, "a value must follow", argv[0]);
        return 0;
    }
    if (call->values[i] && !flag) { /* the last one would win without a word */
        wrong(command, "this option was given already:", argv[0]);
        return 0;
    }
    call->values[i] = flag ? "1" : equals ? equals + 1 : argv[1];
    return flag || equals ? 1 : 2;
}

/* "[URL]": it may be left out. */
static bool arguments_optional(const struct command *command)
{
    return command->arguments[0] == '[';
}

static size_t wanted_arguments(const struct command *command)
{
    size_t n = command->arguments[0] != 0;
    for (const char *p = command->arguments; *p; p++)
        n += *p == ' ';
    return n;
}

int options_parse(const struct command *command, int argc, char **argv, struct invocation *out)
{
    *out = (struct invocation){.command = command};
    for (int i = 0; i < argc;) {
        if (command->rest && strcmp(argv[i], "--") == 0) {
            out->rest = argv + i + 1;
            out->rest_count = (size_t)(argc - i - 1);
            break;
        }
        if (strncmp(argv[i], "--", 2) == 0) {
            int used = take_option(out, argc - i, argv + i);
            if (used == 0)
                return usage_status(command);
            i += used;
            continue;
        }
        if (argv[i][0] == '-' && argv[i][1])
            return wrong(command, "options start with two dashes, not like", argv[i]);
        if (out->argument_count >= wanted_arguments(command))
            return wrong(command,
                         command->rest
                             ? "the command comes behind --, and this word before it:"
                             : "this word is one too many (a text of several words needs quotes):",
                         argv[i]);
        out->arguments[out->argument_count++] = argv[i++];
    }
    if (out->argument_count < wanted_arguments(command) && !arguments_optional(command))
        return wrong(command, "this must be given:", command->arguments);
    if (command->rest && out->rest_count == 0)
        return wrong(command, "this must be given: --", command->rest);
    return 0;
}

static const char *from_environment(const char *name)
{
    char variable[VARIABLE_MAX] = "PI_MANAGED_";
    size_t n = strlen(variable);
    for (; *name && n < sizeof variable - 1; name++)
        variable[n++] = (char)(*name == '-' ? '_' : toupper((unsigned char)*name));
    variable[n] = 0;
    const char *value = getenv(variable);
    return value && value[0] ? value : NULL;
}

const char *option_value(const struct invocation *call, const char *name)
{
    int i = find_option(call->command, name, strlen(name));
    if (i < 0)
        abort(); /* the command's table has no such row */
    if (call->values[i])
        return call->values[i];
    const char *value = from_environment(name);
    return value ? value : call->command->options[i].fallback;
}

bool option_given(const struct invocation *call, const char *name)
{
    int i = find_option(call->command, name, strlen(name));
    return i >= 0 && call->values[i];
}

bool option_flag(const struct invocation *call, const char *name)
{
    const char *value = option_value(call, name);
    return value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

void command_help(const struct command *command)
{
    printf("pi-managed %s%s%s%s%s%s\n\n%s\n", command->name,
           command->options[0].name ? " [options]" : "", command->arguments[0] ? " " : "",
           command->arguments, command->rest ? " -- " : "", command->rest ? command->rest : "",
           command->summary);
    if (command->details)
        printf("%s\n", command->details);
    if (command->options[0].name)
        printf("\n");
    for (const struct option *o = command->options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "--%s %s", o->name, o->value ? o->value : "");
        printf("  %-28s %s%s%s%s\n", left, o->help, o->fallback ? " [" : "",
               o->fallback ? o->fallback : "", o->fallback ? "]" : "");
    }
    if (command->options[0].name)
        printf("\nEach option can also be set as a variable: PI_MANAGED_<NAME>, in capitals, _ for "
               "-.\n");
}

int command_fail(const struct invocation *call)
{
    fprintf(stderr, "pi-managed %s: %s\n", call->command->name, err_text());
    return 1;
}
