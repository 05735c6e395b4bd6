/* A stock NNG client in C: it publishes and listens at a broker, and knows nothing of Mangrove.
 *
 *     cc -o nng_client nng_client.c -lnng                     (Debian: libnng-dev)
 *     ./nng_client tcp://127.0.0.1:7770 sub news.              prints what is published below news
 *     ./nng_client tcp://127.0.0.1:7770 pub news.uk hello      publishes, and prints the receipt
 *
 * A message is the topic, a space, and the body. A REQ socket publishes with a receipt: "accepted ..." or
 * "error: ...". A SUB socket subscribes to the beginning of a topic. Ctrl-C ends the program: NNG needs no goodbye.
 */

#include <nng/nng.h>
#include <nng/protocol/pubsub0/sub.h>
#include <nng/protocol/reqrep0/req.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 10000, RETRY_MS = 2000 };

/* One sentence about what went wrong, and the end of the program. */
static void check(int code, const char *what)
{
    if (code != 0) {
        fprintf(stderr, "nng_client: %s: %s\n", what, nng_strerror(code));
        exit(1);
    }
}

/* Publish one message; returns 0 if the broker accepted it. */
static int publish(const char *url, const char *topic, const char *body)
{
    nng_socket socket;
    char *reply;
    size_t size = strlen(topic) + 1 + strlen(body);
    char *message = malloc(size + 1);

    if (message == NULL)
        check(NNG_ENOMEM, "the message");
    snprintf(message, size + 1, "%s %s", topic, body);
    check(nng_req0_open(&socket), "open");
    /* A lost request is sent again: the broker knows it, and publishes it once. */
    check(nng_socket_set_ms(socket, NNG_OPT_REQ_RESENDTIME, RETRY_MS), "resend time");
    check(nng_socket_set_ms(socket, NNG_OPT_RECVTIMEO, TIMEOUT_MS), "timeout");
    check(nng_dial(socket, url, NULL, 0), url);
    check(nng_send(socket, message, size, 0), "send");
    check(nng_recv(socket, &reply, &size, NNG_FLAG_ALLOC), "no receipt");
    printf("%.*s\n", (int) size, reply);
    int refused = size < 8 || memcmp(reply, "accepted", 8) != 0;
    nng_free(reply, size);
    free(message);
    nng_close(socket);
    return refused;
}

/* Print what is published on topics that begin so, without end. */
static void subscribe(const char *url, const char *beginning)
{
    nng_socket socket;

    check(nng_sub0_open(&socket), "open");
    check(nng_socket_set(socket, NNG_OPT_SUB_SUBSCRIBE, beginning, strlen(beginning)), "subscribe");
    check(nng_dial(socket, url, NULL, 0), url);
    fprintf(stderr, "nng_client: subscribed to %s at %s\n", beginning, url);
    for (;;) {
        char *message;
        size_t size;
        check(nng_recv(socket, &message, &size, NNG_FLAG_ALLOC), "receive");
        printf("%.*s\n", (int) size, message);
        fflush(stdout);
        nng_free(message, size);
    }
}

int main(int count, char **words)
{
    if (count == 5 && strcmp(words[2], "pub") == 0)
        return publish(words[1], words[3], words[4]);
    if (count == 4 && strcmp(words[2], "sub") == 0)
        subscribe(words[1], words[3]);
    fprintf(stderr, "usage: nng_client URL pub TOPIC BODY\n       nng_client URL sub BEGINNING\n");
    return 64;
}
