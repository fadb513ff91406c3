/* Test equipment: prints what the service would hand to a host (session/context.h), and what it
   says that the model is shown (session/messages.h).
   context_lines LOGS TENANT   and a session's id on each line of standard input; for each it prints
   how many lines follow, then the lines, then the messages in one. */
#include "session/context.h"
#include "session/messages.h"

#include <stdio.h>
#include <string.h>

static err print(void *arg, struct str bytes)
{
    (void)arg;
    fwrite(bytes.p, 1, bytes.n, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    char session[200];
    if (argc != 3) {
        fprintf(stderr, "usage: context_lines LOGS TENANT\n");
        return 2;
    }
    while (fgets(session, sizeof session, stdin)) {
        session[strcspn(session, "\n")] = 0;
        AUTO_BUF lines = {0};
        size_t n = 0;
        if (context_lines(argv[1], argv[2], session, &lines, &n)) {
            fprintf(stderr, "%s\n", err_text());
            return 1;
        }
        printf("%zu\n", n);
        fwrite(lines.p, 1, lines.n, stdout);
        if (session_messages(argv[1], argv[2], session, print, NULL)) {
            fprintf(stderr, "%s\n", err_text());
            return 1;
        }
        putchar('\n');
    }
    return 0;
}
