// One read and one change with the generated Go client: go run . SERVER TOKEN NAME
package main

import (
	"context"
	"fmt"
	"os"

	gpuaas "github.com/gpuaas/client"
)

func main() {
	configuration := gpuaas.NewConfiguration()
	configuration.Servers = gpuaas.ServerConfigurations{{URL: os.Args[1]}}
	client := gpuaas.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), gpuaas.ContextAccessToken, os.Args[2])

	me, _, err := client.AuthAPI.AuthMe(ctx).Execute()
	check(err)
	body := gpuaas.NewCreateOrg(me.GetName(), os.Args[3])
	org, _, err := client.IdentityAPI.IdentityOrgCreate(ctx).XIdempotencyKey(os.Args[3]).CreateOrg(*body).Execute()
	check(err)
	fmt.Println(me.GetName(), org.GetName(), org.GetCreatedAt().UTC().Year())

	_, response, err := client.CapacityAPI.CapacityNodeGet(ctx, "no-such-node").Execute()
	fmt.Println(response.StatusCode, err != nil)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
