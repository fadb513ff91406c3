/* pi-managed: finds the command, or the role when the parent started us. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/control.h"
#include "base/log.h"
#include "broker/broker.h"
#include "cli/command.h"
#include "cli/logging.h"
#include "cli/setup.h"
#include "harness/launch.h"
#include "parent/maker.h"
#include "parent/roles.h"

static const struct option no_options[] = {{0}};

static int print_version(const struct invocation *call)
{
    (void)call;
    printf("pi-managed %s\n", PM_VERSION);
    return 0;
}

static const struct command version_command = {
    .name = "version",
    .arguments = "",
    .summary = "Prints the version.",
    .options = no_options,
    .run = print_version,
};

/* The table of commands, as --help shows it; ended by .title NULL. */
static const struct section {
    const char *title;
    const struct command *commands[24]; /* ended by NULL */
} sections[] = {
    {"Everyday",
     {
         &serve_command,
         &doctor_command,
         &run_command,
         &why_command,
         &diff_command,
         &pull_command,
         &shell_command,
         &export_command,
         &import_command,
     }},
    {"Sessions: agents at work, over a running service",
     {
         &session_create_command,
         &session_list_command,
         &session_get_command,
         &session_send_command,
         &session_tail_command,
         &session_interrupt_command,
         &session_withdraw_command,
         &session_update_command,
         &session_fork_command,
         &session_delete_command,
     }},
    {"Agents: a model, a prompt, tools",
     {
         &agent_create_command,
         &agent_list_command,
         &agent_get_command,
         &agent_update_command,
         &agent_versions_command,
         &agent_archive_command,
     }},
    {"Environments: what sandboxes are made of",
     {
         &env_create_command,
         &env_list_command,
         &env_get_command,
         &env_update_command,
         &env_archive_command,
         &env_delete_command,
     }},
    {"Vaults: keys of model providers",
     {
         &vault_create_command,
         &vault_list_command,
         &vault_set_command,
         &vault_keys_command,
         &vault_check_command,
         &vault_unset_command,
         &vault_archive_command,
     }},
    {"Files, uploaded or left by sessions",
     {
         &file_upload_command,
         &file_list_command,
         &file_get_command,
         &file_download_command,
         &file_delete_command,
     }},
    {"Volumes that environments mount",
     {
         &volume_list_command,
         &volume_get_command,
         &volume_remove_command,
     }},
    {"Images that environments start from",
     {
         &image_import_command,
         &image_build_command,
         &image_list_command,
         &image_prune_command,
         &image_remove_command,
     }},
    {"Data directory, tenants, keys",
     {
         &init_command,
         &key_create_command,
         &key_list_command,
         &key_revoke_command,
         &tenant_create_command,
         &tenant_list_command,
         &tenant_set_command,
         &plan_list_command,
         &plan_set_command,
         &vault_rotate_key_command,
     }},
    {"Sandboxes without a service",
     {
         &sandbox_run_command,
         &sandbox_exec_command,
         &sandbox_shell_command,
         &sandbox_tool_command,
         &sandbox_list_command,
         &sandbox_remove_command,
         &sandbox_snapshot_command,
         &sandbox_fork_command,
     }},
    {"This machine, this program",
     {
         &guard_command,
         &version_command,
     }},
    {0},
};
#define COMMANDS_MAX 200

static int run_control(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return control_main();
}

static int run_broker(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return broker_main();
}

static int run_maker(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return maker_main();
}

static int run_setup(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return setup_main();
}

/* What the parent starts. log_init keeps the name, so it is a literal. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} roles[] = {
    {"control", run_control}, {"broker", run_broker}, {"host", host_launcher_main},
    {"maker", run_maker},     {"setup", run_setup},
};

static const char *word_after(int argc, char **argv, const char *option)
{
    for (int i = 0; i + 1 < argc; i++) {
        if (strcmp(argv[i], option) == 0)
            return argv[i + 1];
    }
    return "";
}

/* argv: pi-managed --role NAME [--log-format F] [--log-level L] … */
static int run_role(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(argv[2], roles[i].name) != 0)
            continue;
        role_enter(roles[i].name);
        log_init(roles[i].name, logging_format(word_after(argc, argv, "--log-format")),
                 logging_level(word_after(argc, argv, "--log-level")));
        return roles[i].run(argc, argv);
    }
    fprintf(stderr, "pi-managed: there is no role %s\n", argv[2]);
    return 2;
}

static void print_command(const struct command *c)
{
    char left[64];
    snprintf(left, sizeof left, "%s %s%s%s%s", c->name, c->arguments,
             c->rest && c->arguments[0] ? " " : "", c->rest ? "-- " : "", c->rest ? c->rest : "");
    printf("  %-32s %s\n", left, c->summary);
}

static void print_help(void)
{
    printf("pi-managed %s: runs Pi coding agents durably, in sandboxes.\n", PM_VERSION);
    for (const struct section *s = sections; s->title; s++) {
        printf("\n%s\n", s->title);
        for (const struct command *const *c = s->commands; *c; c++)
            print_command(*c);
    }
    printf("\npi-managed COMMAND --help shows its options.\n");
}

/* "session" alone: all that begins so. False: nothing does. */
static bool print_family(const char *word)
{
    bool any = false;
    size_t n = strlen(word);
    for (const struct section *s = sections; s->title; s++) {
        for (const struct command *const *c = s->commands; *c; c++) {
            if (strncmp((*c)->name, word, n) != 0 || (*c)->name[n] != ' ')
                continue;
            print_command(*c);
            any = true;
        }
    }
    return any;
}

/* Words that people type for others: a command is known by any of a row. */
static const char *const synonyms[][4] = {
    {"list", "ls"},    {"remove", "rm", "delete"}, {"get", "show"},
    {"create", "new"}, {"env", "environment"},
};

static bool means(const char *name, size_t n, const char *word)
{
    if (strlen(word) == n && memcmp(word, name, n) == 0)
        return true;
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++) {
        bool has_name = false, has_word = false;
        for (size_t k = 0; k < 4 && synonyms[i][k]; k++) {
            const char *one = synonyms[i][k];
            has_name = has_name || (strlen(one) == n && memcmp(one, name, n) == 0);
            has_word = has_word || strcmp(one, word) == 0;
        }
        if (has_name && has_word)
            return true;
    }
    return false;
}

/* How many words of argv name the command: 1, 2, or 0 if they do not. */
static int words_matching(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');
    if (space == NULL)
        return strcmp(argv[0], name) == 0 ? 1 : 0;
    size_t n = (size_t)(space - name);
    return argc > 1 && means(name, n, argv[0]) && means(space + 1, strlen(space + 1), argv[1]) ? 2
                                                                                               : 0;
}

/* "tail" alone: session tail. */
static const char *verb_of_family(const char *word, const char *const *names)
{
    for (; *names; names++) {
        const char *space = strchr(*names, ' ');
        if (space && strcmp(space + 1, word) == 0)
            return *names;
    }
    return NULL;
}

static int unknown_command(int argc, char **argv)
{
    const char *names[COMMANDS_MAX + 1] = {0};
    char asked[128];
    size_t n = 0;
    for (const struct section *s = sections; s->title; s++) {
        for (const struct command *const *c = s->commands; *c && n < COMMANDS_MAX; c++)
            names[n++] = (*c)->name;
    }
    bool two = argc > 1 && argv[1][0] != '-';
    snprintf(asked, sizeof asked, "%s%s%s", argv[0], two ? " " : "", two ? argv[1] : "");
    const char *near = nearest_name(asked, names);
    if (near == NULL)
        near = nearest_name(argv[0], names);
    if (near == NULL)
        near = verb_of_family(argv[0], names);
    fprintf(stderr, "pi-managed: there is no command %s%s%s%s\nSee: pi-managed --help\n", asked,
            near ? "; do you mean " : "", near ? near : "", near ? "?" : "");
    return 2;
}

static bool asks_help(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    }
    return false;
}

static const struct command *find_command(int argc, char **argv, int *out_words)
{
    for (const struct section *s = sections; s->title; s++) {
        for (const struct command *const *c = s->commands; *c; c++) {
            *out_words = words_matching((*c)->name, argc, argv);
            if (*out_words)
                return *c;
        }
    }
    return NULL;
}

static int run_words(int argc, char **argv)
{
    int words;
    const struct command *command = find_command(argc, argv, &words);
    if (command == NULL) {
        bool help = argc > 1 && asks_help(1, argv + 1);
        if ((argc == 1 || help) && print_family(argv[0]))
            return help ? 0 : 2;
        return unknown_command(argc, argv);
    }
    if (asks_help(argc - words, argv + words)) {
        command_help(command);
        return 0;
    }
    struct invocation call;
    int status = options_parse(command, argc - words, argv + words, &call);
    return status ? status : command->run(&call);
}

/* help COMMAND */
static int help_on(int argc, char **argv)
{
    int words;
    const struct command *command = find_command(argc, argv, &words);
    if (command == NULL)
        return argc == 1 && print_family(argv[0]) ? 0 : unknown_command(argc, argv);
    command_help(command);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "--role") == 0)
        return run_role(argc, argv);
    if (argc > 2 && strcmp(argv[1], "help") == 0)
        return help_on(argc - 2, argv + 2);
    if (argc < 2 || asks_help(1, argv + 1) || strcmp(argv[1], "help") == 0) {
        print_help();
        return argc < 2 ? 2 : 0;
    }
    if (strcmp(argv[1], "--version") == 0)
        return print_version(NULL);
    return run_words(argc - 1, argv + 1);
}
